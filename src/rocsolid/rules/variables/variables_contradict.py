"""Two environment variables contradict each other.

## What it does
Looks for pairs that contradict each other: two different lists of visible devices, two names of one setting with
different values, TunableOp tuning requested while TunableOp is off.

## Why it matters
Which of the two is used depends on the library and its release, and there is no message about it.

## Example
    HIP_VISIBLE_DEVICES=0,1
    CUDA_VISIBLE_DEVICES=2,3

## Use instead
Keep one of the two.

## When to allow it
When two programs with different needs share the environment.
"""

from collections.abc import Iterator

from rocsolid.catalog import tunableop
from rocsolid.catalog.registry import all_settings
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Owner

RULE = Rule(
    code="ENV004",
    name="variables-contradict",
    severity=Severity.WARNING,
    message="Environment variables {first} and {second} contradict each other",
    why="{reason}",
    fix="{fix}",
    check="env | grep -E '{subject}'",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every pair of variables that contradict each other."""
    yield from _renamed(env)
    yield from _visible_devices(env)
    yield from _tunableop(env)


def _renamed(env: Environment) -> Iterator[Finding]:
    for setting in all_settings():
        names = [n for n in (setting.name, *setting.former_names) if n in env.variables]
        if setting.owner is Owner.PROCESS and len({env.variables[n] for n in names}) > 1:
            first, second = names[0], names[1]
            yield _contradiction(env, first, second, "They are two names of one setting.", f"unset {second}")


def _visible_devices(env: Environment) -> Iterator[Finding]:
    hip, cuda = "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
    if (
        env.platform is Platform.ROCM
        and {hip, cuda} <= env.variables.keys()
        and env.variables[hip] != env.variables[cuda]
    ):
        yield _contradiction(env, hip, cuda, "HIP reads both, and they list different devices.", f"unset {cuda}")


def _tunableop(env: Environment) -> Iterator[Finding]:
    enabled, tuning = tunableop.ENABLED, tunableop.TUNING
    if env.variables.get(tuning) == "1" and env.variables.get(enabled, "0") == "0":
        yield RULE.found(
            f"{tuning}|{enabled}",
            first=f"{tuning}=1",
            second=f"{enabled}=0" if enabled in env.variables else f"{enabled} (unset)",
            reason="Tuning is requested, but TunableOp is off, so nothing is tuned.",
            fix=f"export {enabled}=1   (or unset {tuning})",
        )


def _contradiction(env: Environment, first: str, second: str, reason: str, fix: str) -> Finding:
    return RULE.found(
        f"{first}|{second}",
        first=f"{first}={env.variables[first]}",
        second=f"{second}={env.variables[second]}",
        reason=reason,
        fix=fix,
    )
