"""A small test computation failed on this machine.

## What it does
`rocsolid probe --active` runs matrix products in every dtype, a compile, a graph capture with two hundred replays in
several new processes, and FP8 attention where available. Each runs in its own process with a deadline, and its result
is compared with a reference.

## Why it matters
This finding does not depend on a list of known problems: the computation fails on this machine, now.

## Example
    Active check `capture` gave a wrong result: replay 117 differs from eager by 3.1

## Use instead
Follow the fix in the finding. If a capture returns wrong results here, do not use graphs on this machine, whatever the
version numbers say.

## When to allow it
Never for a wrong result.
"""

from collections.abc import Iterator

from rocsolid.model.environment import CheckStatus, Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="ACT001",
    name="active-check-failed",
    severity=Severity.CRITICAL,
    message="Active check `{subject}` {what} after {seconds:.1f} s: {detail}",
    why="{reason}",
    fix="Do not rely on `{subject}` on this machine. A known problem in this report may name the cause.",
    check="rocsolid probe --active",
    since="0.1",
)

_OUTCOMES = {
    CheckStatus.WRONG: ("gave a wrong result", "The computation finished without an error, but its result is wrong."),
    CheckStatus.HUNG: (
        "hung",
        "The computation did not finish before its deadline. A program that does the same would hang.",
    ),
    CheckStatus.CRASHED: ("crashed", "The computation crashed its process. A program that does the same would crash."),
    CheckStatus.FAILED: ("failed", "The computation raised an error."),
}


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every active check that gave a wrong result, hung, crashed or raised an error."""
    for done in env.active_checks:
        if done.status in _OUTCOMES:
            what, reason = _OUTCOMES[done.status]
            yield RULE.found(
                done.name,
                severity=Severity.WARNING if done.status is CheckStatus.FAILED else Severity.CRITICAL,
                what=what,
                detail=done.detail,
                seconds=done.seconds,
                reason=reason,
            )
