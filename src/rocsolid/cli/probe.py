"""Find what makes torch.compile or CUDA/HIP graphs hang, crash or return wrong results on this machine.

Each finding has the reason, the fix, a command that checks the fix, and the evidence.

Examples:
  rocsolid probe                            read files, without importing torch; takes about a second
  rocsolid probe --live                     also find settings that start-up files assign; imports torch, takes seconds
  rocsolid probe --live --import vllm       also find settings that importing vllm assigns
  rocsolid probe --active                   also run small computations, a compile and captures, in child processes
  rocsolid probe --target gfx942@7.2.1      what it would find on an MI300X with ROCm 7.2.1, with your variables and packages
  rocsolid probe --fix --env-file fix.sh    print the fixes, and write the shell commands to a file
  rocsolid probe --output html --out probe.html
  rocsolid probe --output json --out before.json            save a probe
  rocsolid probe --diff before.json                         show what changed since then
  rocsolid probe --record --image rocm/pytorch:latest
  rocsolid probe --allow KNO001:numa-balancing-on --fail-on warning

"""

import argparse
import sys
from pathlib import Path

from rocsolid.cli.fail_on import add_fail_on, drop_allowed, exit_code_of
from rocsolid.cli.output import add_output, note, read, write
from rocsolid.cli.render import render
from rocsolid.cli.target import add_target, on_target
from rocsolid.errors import UsageError
from rocsolid.model.finding import Severity
from rocsolid.model.redact import redact_all
from rocsolid.model.saved_probe import ProbeDifference, ProbeRecord


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--profile", default="safe", help="the profile that settings are compared with (default: safe)")
    parser.add_argument(
        "--live", action="store_true", help="read settings in a fresh interpreter (slow: imports torch's compiler)"
    )
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="also find the settings that importing PACKAGE assigns; implies --live (repeatable)",
    )
    parser.add_argument(
        "--active",
        action="store_true",
        help="also run small computations, a compile and captures, in child processes with a deadline",
    )
    add_target(parser)
    parser.add_argument("--fix", action="store_true", help="print the commands that fix the findings")
    parser.add_argument(
        "--env-file",
        type=Path,
        metavar="FILE",
        help="with --fix: also write the shell commands to FILE, for `source FILE`",
    )
    parser.add_argument(
        "--diff", type=Path, metavar="OLD.json", help="show what changed since a probe saved with --output json"
    )
    parser.add_argument("--record", action="store_true", help="store the result in the ledger of container images")
    parser.add_argument(
        "--image",
        default="",
        metavar="NAME",
        help="with --record: the name of the image (needed in Docker and Kubernetes, where a process cannot read it)",
    )
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="with --record: the ledger file (default: $ROCSOLID_LEDGER, or a file in your data folder)",
    )
    add_fail_on(parser, "critical")
    parser.add_argument("-v", "--verbose", action="store_true", help="show INFO findings in full")
    add_output(parser, ("text", "json", "sarif", "github", "html"))


def run(args: argparse.Namespace) -> int:
    """Take the snapshot, check it, and write the result."""
    _check_options(args)
    with on_target(args, "--live", "--active", "--record"):
        record = _probe(args)
    if args.record:
        _record(record, args)
    if args.diff:
        difference = _difference(record, args.diff)
        write(_difference_text(difference, args), args.out)
        return exit_code_of(difference.new_findings, args.fail_on)
    if args.fix:
        from rocsolid.report.fix_commands import env_file, fix_text

        findings = [f for f in record.findings if args.verbose or f.severity > Severity.INFO]
        if args.env_file:
            write(env_file(findings), args.env_file)
        write(fix_text(findings), args.out)
    else:
        write(render(record, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    return exit_code_of(record.findings, args.fail_on)


def _check_options(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect."""
    for wrong, message in (
        (args.env_file and not args.fix, "--env-file requires --fix"),
        (args.image and not args.record, "--image requires --record"),
        (args.fix and args.output != "text", f"--fix cannot be combined with --output {args.output}"),
        (args.fix and args.diff, "--fix cannot be combined with --diff"),
        (args.target and args.imports, "--import needs the real machine: drop it, or drop --target"),
        (args.diff and args.output not in ("text", "json"), "--diff supports --output text and json only"),
    ):
        if wrong:
            raise UsageError(message)


def _probe(args: argparse.Namespace) -> ProbeRecord:
    from rocsolid.api.probe import check, probe
    from rocsolid.catalog.profiles import profile

    profile(args.profile)  # raises an error for a wrong name before the probe starts
    if args.live or args.imports:
        sys.stderr.write("reading settings in a fresh interpreter; importing torch's compiler takes several seconds\n")
    env = probe(live=bool(args.live or args.imports), imports=args.imports, active=args.active, progress=True)
    findings = drop_allowed(check(env, args.profile), args.allow)
    return ProbeRecord(environment=env, findings=findings, profile=args.profile)


def _difference(record: ProbeRecord, old: Path) -> ProbeDifference:
    from rocsolid.cli.records import read_probe
    from rocsolid.probe.diff import compare_probes

    return redact_all(compare_probes(read_probe(read(old), str(old)), record))


def _difference_text(difference: ProbeDifference, args: argparse.Namespace) -> str:
    if args.output == "json":
        from rocsolid.model.codec import dumps

        return dumps("rocsolid/difference/1", difference=difference)
    from rocsolid.report.probe_text import difference_text
    from rocsolid.report.terminal import Terminal, terminal_of

    return difference_text(difference, Terminal() if args.out else terminal_of())


def _record(record: ProbeRecord, args: argparse.Namespace) -> None:
    from rocsolid.api.images import record_probe

    entry = record_probe(record, image=args.image, file=args.ledger)
    note(f"recorded as {entry.key}")
