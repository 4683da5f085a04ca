"""Options of the commands that report findings: which findings to allow, and which make the exit code 1."""

import argparse
from collections.abc import Sequence

from rocsolid.model.finding import Finding, Severity

FAIL_ON = ("critical", "warning", "info", "never")


def add_fail_on(parser: argparse.ArgumentParser, fail_on: str) -> None:
    """Add `--allow NAME` and `--fail-on SEVERITY`."""
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="do not report findings with this code, rule name, subject or CODE:subject (repeatable)",
    )
    parser.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        default=fail_on,
        help=f"lowest severity that makes the exit code 1 (default: {fail_on})",
    )


def not_allowed(findings: Sequence[Finding], names: Sequence[str]) -> tuple[Finding, ...]:
    """The findings whose code, rule name, subject and key are not in `names`."""
    return tuple(f for f in findings if not any(name in (f.code, f.name, f.subject, f.key) for name in names))


def fails(findings: Sequence[Finding], fail_on: str) -> int:
    """The exit code: 1 when there is a finding of at least that severity, otherwise 0."""
    if fail_on == "never":
        return 0
    least = Severity[fail_on.upper()]
    return int(any(f.severity >= least for f in findings))
