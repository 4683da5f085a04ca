"""A small real computation went wrong on this machine.

## What it does
With `rocsolid probe --active`, runs matrix products in every type, a compile, a graph capture with two hundred replays in
several fresh processes, and FP8 attention where there is one. Each runs in a process of its own with a deadline, and each
answer is compared with a reference.

## Why it matters
It is the one kind of finding that needs no list: this machine, now, does not do it right.

## Example
    capture: wrong, replay 117 differs from eager by 3.1

## Use instead
Follow the finding's own words; a capture that is wrong here must not be used, whatever the versions say.

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
    message="{subject} {ending} after {seconds:.1f} s: {detail}",
    why="{reason}",
    fix="do not rely on it on this machine; the known problems above may name the cause",
    check="rocsolid probe --active",
    since="0.1",
)

_REASONS = {
    CheckStatus.WRONG: "The computation ended without an error, and its answer is wrong.",
    CheckStatus.HUNG: "The computation did not end within its deadline, and would hang a program.",
    CheckStatus.CRASHED: "The computation ended its process, and would end a program.",
    CheckStatus.FAILED: "The computation raised an error.",
}


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every computation that did not give the right answer in time."""
    for done in env.checks:
        if done.status in _REASONS:
            yield RULE.found(
                done.name,
                severity=Severity.WARNING if done.status is CheckStatus.FAILED else Severity.CRITICAL,
                ending=done.status.value,
                detail=done.detail,
                seconds=done.seconds,
                reason=_REASONS[done.status],
            )
