"""What commands that find things share: which findings are left out, and which of them make the exit code 1."""

import argparse
from collections.abc import Sequence

from rocsolid.model.finding import Finding, Severity

FAIL_ON = ("critical", "warning", "info", "never")


def add_judging(parser: argparse.ArgumentParser, fail_on: str) -> None:
    """`--allow NAME` and `--fail-on SEVERITY`."""
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="leave out findings by code, rule, subject or CODE:subject (repeatable)",
    )
    parser.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        default=fail_on,
        help=f"least severity that makes the exit code 1 (default: {fail_on})",
    )


def not_allowed(findings: Sequence[Finding], names: Sequence[str]) -> tuple[Finding, ...]:
    """Those that are not allowed by code, rule's name, subject or key."""
    return tuple(f for f in findings if not any(name in (f.code, f.name, f.subject, f.key) for name in names))


def fails(findings: Sequence[Finding], fail_on: str) -> int:
    """1 when there is a finding of at least that severity."""
    if fail_on == "never":
        return 0
    least = Severity[fail_on.upper()]
    return int(any(f.severity >= least for f in findings))
