"""Options of the commands that report findings: `--allow` hides findings, `--fail-on` selects the exit code."""

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


def drop_allowed(findings: Sequence[Finding], names: Sequence[str]) -> tuple[Finding, ...]:
    """Return the findings without those whose code, rule name, subject or key is in `names`."""
    return tuple(f for f in findings if not any(name in (f.code, f.name, f.subject, f.key) for name in names))


def exit_code_of(findings: Sequence[Finding], fail_on: str) -> int:
    """The exit code: 1 when there is a finding of at least that severity, otherwise 0."""
    if fail_on == "never":
        return 0
    lowest = Severity[fail_on.upper()]
    return int(any(f.severity >= lowest for f in findings))
