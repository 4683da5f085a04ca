"""Check every statement that rocsolid makes about ROCm (and CUDA) on this machine, and write a record that can be merged.

Examples:
  rocsolid prove                                         15 minutes, most valuable checks first
  rocsolid prove --minutes 5 --output json --out proof.json
  rocsolid prove --list                                  all claims, with the check of each
  rocsolid prove --only capture-rules                    one check, or the check of one claim
  rocsolid prove --bundle rocsolid-prove.pyz             one file to run on another machine: python rocsolid-prove.pyz

Each check runs in a child process with a deadline. A run that was interrupted continues where it stopped; finished checks are not
repeated. Nothing is sent: attach the JSON file to an issue. The exit code is 1 if a claim is refuted.

"""

import argparse
from pathlib import Path

from rocsolid.cli.output import add_output, note, require_writable, write
from rocsolid.errors import UsageError

_JOURNAL = Path(".rocsolid/prove.jsonl")
_MAX_WORKERS = 4


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--minutes", type=float, default=15.0, metavar="N", help="stop after this time (default: 15)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ID",
        help="run only this check, or the check of this claim (repeatable)",
    )
    parser.add_argument("--list", action="store_true", help="list the claims and their checks, and run nothing")
    parser.add_argument(
        "--bundle", type=Path, metavar="FILE", help="write rocsolid and its checks into one file, and run nothing"
    )
    parser.add_argument(
        "--journal",
        type=Path,
        default=_JOURNAL,
        metavar="FILE",
        help=f"where finished checks are kept (default: {_JOURNAL})",
    )
    parser.add_argument("--fresh", action="store_true", help="run finished checks again")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="checks of the GPU that run at the same time (default: 1); timings always run alone",
    )
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Run the checks and write the record; 1 if a claim is refuted."""
    if not 0 < args.minutes < 24 * 60:
        msg = f"--minutes {args.minutes:g}: give a number between 0 and 1440"
        raise UsageError(msg)
    if args.jobs < 1:
        msg = f"--jobs {args.jobs}: give a number of at least 1"
        raise UsageError(msg)
    if args.bundle:
        return _bundle(args.bundle)
    if args.list:
        write(_listing(), args.out)
        return 0
    from rocsolid.cli.render import render_report
    from rocsolid.model.proof import ClaimVerdict
    from rocsolid.report.progress import show_steps

    for file in filter(None, (args.out, args.journal)):
        require_writable(file)
    from rocsolid.prove.prove import prove

    with show_steps(budget_s=args.minutes * 60) as on_step:
        record = prove(
            minutes=args.minutes,
            only=args.only,
            journal=args.journal,
            fresh=args.fresh,
            workers=_MAX_WORKERS,
            gpu_workers=args.jobs,
            on_step=on_step,
        )
    write(render_report(record, args.output), args.out)
    return int(record.counts()[ClaimVerdict.REFUTED] > 0)


def _bundle(target: Path) -> int:
    require_writable(target)
    from rocsolid.prove.bundle import write_bundle
    from rocsolid.prove.check import GUIDES

    count = write_bundle(target)
    write(f"{count} files in {target}; run it with: python {target}\n", None)
    if not GUIDES.exists():
        note(
            "left out: the checks that need rocsolid's tests, experiments and guides, which pip does not install. "
            "A bundle that is made in a checkout has them."
        )
    return 0


def _listing() -> str:
    from rocsolid.prove.check import all_claims

    claims = all_claims()
    rows = [f"{claim.check or 'none: ' + claim.undecidable:45} {claim.id}" for claim in claims]
    checked = sum(bool(claim.check) for claim in claims)
    return "\n".join([*rows, f"{len(claims)} claims, {checked} with a check"]) + "\n"
