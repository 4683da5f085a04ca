"""Say what in this machine, container and build will hang, crash or slow down a compile, why, and how to mend it.

Examples:
  rocsolid probe                            read from files, without importing torch: one second
  rocsolid probe --live                     also what start-up files assign; as slow as importing torch's compiler
  rocsolid probe --live --import vllm       and what importing vllm assigns
  rocsolid probe --active                   compute, compile and capture for real, in processes of their own
  rocsolid probe --fix --env-file fix.sh    write the fixes as shell lines
  rocsolid probe --output html --out probe.html
  rocsolid probe --output json > before.json; …; rocsolid probe --diff before.json
  rocsolid probe --record --image rocm/pytorch:latest
  rocsolid probe --allow KNO001:numa-balancing-on --fail-on warning

"""

import argparse
import sys
from pathlib import Path

from rocsolid.cli.fail_on import add_judging, fails, not_allowed
from rocsolid.cli.output import add_output, read, write
from rocsolid.cli.render import render
from rocsolid.errors import UsageError
from rocsolid.model.finding import Severity
from rocsolid.model.saved_probe import Difference, ProbeRecord


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--profile", default="safe", help="the profile that settings are held against (default: safe)")
    parser.add_argument(
        "--live", action="store_true", help="read settings in a fresh interpreter (slower: imports torch's compiler)"
    )
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="on the live route, also watch what importing PACKAGE assigns (repeatable)",
    )
    parser.add_argument(
        "--active", action="store_true", help="run small real computations, each in a process with a deadline"
    )
    parser.add_argument("--fix", action="store_true", help="print what to run about the findings")
    parser.add_argument("--env-file", type=Path, metavar="FILE", help="with --fix: also write the shell lines to FILE")
    parser.add_argument("--diff", type=Path, metavar="OLD.json", help="show what changed since a saved probe")
    parser.add_argument("--record", action="store_true", help="keep the result in the ledger of images")
    parser.add_argument(
        "--image",
        default="",
        metavar="NAME",
        help="with --record: the image's name, where it cannot be seen from inside",
    )
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="the ledger to write to")
    add_judging(parser, "critical")
    parser.add_argument("-v", "--verbose", action="store_true", help="show notes in full")
    add_output(parser, ("text", "json", "sarif", "github", "html"))


def run(args: argparse.Namespace) -> int:
    """Take the snapshot, judge it, and show it in the form asked for."""
    _refuse(args)
    record = _probe(args)
    if args.record:
        _keep(record, args)
    if args.diff:
        change = _difference(record, args.diff)
        write(_difference_text(change, args), args.out)
        return fails(change.new, args.fail_on)
    if args.fix:
        from rocsolid.report.fix_commands import env_file, fix_text

        loud = [f for f in record.findings if args.verbose or f.severity > Severity.INFO]
        if args.env_file:
            write(env_file(loud), args.env_file)
        write(fix_text(loud), args.out)
    else:
        write(render(record, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    return fails(record.findings, args.fail_on)


def _refuse(args: argparse.Namespace) -> None:
    """What would be passed over in silence is said."""
    for given, needs, said in (
        (args.env_file, args.fix, "--env-file writes what --fix prints; give both"),
        (args.image, args.record, "--image names what --record keeps; give both"),
        (args.fix and args.output != "text", False, f"--fix prints shell and Python lines, and no {args.output}"),
        (args.fix and args.diff, False, "give --fix or --diff, not both"),
        (args.diff and args.output not in ("text", "json"), False, "--diff is shown as text or json"),
    ):
        if given and not needs:
            raise UsageError(said)


def _probe(args: argparse.Namespace) -> ProbeRecord:
    from rocsolid.api.probe import check, probe
    from rocsolid.catalog.profiles import profile

    profile(args.profile)  # a wrong name is said before the work, not after
    if args.live or args.imports:
        sys.stderr.write("reading settings in a fresh interpreter; importing torch's compiler takes several seconds\n")
    env = probe(
        live=bool(args.live or args.imports),
        imports=args.imports,
        active=args.active,
        progress=_progress,
    )
    findings = not_allowed(check(env, args.profile), args.allow)
    return ProbeRecord(environment=env, findings=findings, profile=args.profile)


def _progress(name: str) -> None:
    end = "\r" if sys.stderr.isatty() else "\n"
    sys.stderr.write(f"{'running ' + name:<60}{end}")
    sys.stderr.flush()


def _difference(record: ProbeRecord, old: Path) -> Difference:
    from rocsolid.cli.records import read_probe
    from rocsolid.probe.diff import difference

    return difference(read_probe(read(old), str(old)), record)


def _difference_text(change: Difference, args: argparse.Namespace) -> str:
    if args.output == "json":
        from rocsolid.model.codec import dumps

        return dumps("rocsolid/difference/1", difference=change)
    from rocsolid.report.probe_text import difference_text
    from rocsolid.report.terminal import Terminal, terminal_of

    return difference_text(change, Terminal() if args.out else terminal_of())


def _keep(record: ProbeRecord, args: argparse.Namespace) -> None:
    from rocsolid.api.images import keep

    entry = keep(record, image=args.image, file=args.ledger)
    sys.stderr.write(f"recorded as {entry.key}\n")
