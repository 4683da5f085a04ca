"""A small test computation failed on this machine.

## What it does
`rocsolid probe --active` runs matrix products in every dtype, a compile, a graph capture with two hundred replays in
several new processes, and FP8 attention where available. Each runs in its own process with a deadline, and its result
is compared with a reference.

## Why it matters
This finding does not come from a list of known problems: the computation was run on this machine and failed.

## Example
    Active check `capture` gave a wrong result: replay 117 differs from eager by 3.1

## Use instead
Follow the fix in the finding. If a capture returns wrong results here, do not use graphs on this machine, even if
no known problem lists its versions.

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
    message="Active check {check_name} {outcome} after {seconds:.1f} s: {detail}",
    why="{reason}",
    fix="Do not use {feature} on this machine. Known problems in this report may name the cause.",
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

# What to avoid when a check fails, by the first word of its name.
_FEATURES = {"capture": "graph capture", "compile": "torch.compile", "fp8": "FP8 attention"}


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every active check that gave a wrong result, hung, crashed or raised an error."""
    for result in env.active_checks:
        if result.status in _OUTCOMES:
            outcome, reason = _OUTCOMES[result.status]
            yield RULE.found(
                result.name,
                check_name=_check_name(result.name, env),
                severity=Severity.WARNING if result.status is CheckStatus.FAILED else Severity.CRITICAL,
                outcome=outcome,
                detail=result.detail,
                seconds=result.seconds,
                feature=_feature(result.name),
                reason=reason,
            )


def _check_name(name: str, env: Environment) -> str:
    """The name in the message. Several processes run the same check, so `capture (process 1)` is shown with their number."""
    check_name, in_process, number = name.partition(" (process ")
    if not in_process:
        return f"`{check_name}`"
    total = sum(result.name.startswith(f"{check_name} (process ") for result in env.active_checks)
    return f"`{check_name}` (process {number.rstrip(')')} of {total})"


def _feature(check_name: str) -> str:
    """What the check tests, in words: `capture (process 1)` tests graph capture."""
    group, _, detail = check_name.partition(" ")
    return f"matrix products in {detail}" if group == "gemm" else _FEATURES.get(group, f"`{check_name}`")
