"""TORCH_COMPILE_OVERRIDE_* replaces a compiler setting, whatever the program sets.

## What it does
Reads `TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS` and `TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS` as torch does, and lists the
settings they replace.

## Why it matters
The variable was made for finding the compiled graph that causes a problem (bisecting). From torch 2.12 on, it overrides
modes and options; in 2.11, modes and options override it. Config modules do not show the replaced value, and every
backend except Inductor fails while the variable is set.

## Example
    $ export TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS=">=0:max_autotune=True"

## Use instead
    unset TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS

## When to allow it
While bisecting.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.evidence import measured
from rocsolid.model.finding import Autofix, Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import setting_finding, settings_changed_by

_OVERRIDES_OPTIONS = measured(
    "compiler-facts-torch-2.13-cpu",
    "It overrode options that were passed to torch.compile, and a backend other than Inductor failed.",
)

RULE = Rule(
    code="CFG003",
    name="setting-replaced-by-override",
    severity=Severity.WARNING,
    message="{set_by} replaces `{subject}` with {value} (release default: {release_default})",
    why="It replaces the setting in the compiled graphs whose numbers it lists. From torch 2.12 on, it overrides assignments, modes and options; backends other than Inductor fail with it. {harm}",
    fix="unset {set_by}",
    check="rocsolid probe",
    since="0.1",
    autofix=Autofix.ASK,
    evidence=(_OVERRIDES_OPTIONS,),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that the variable replaces. The severity is at least WARNING."""
    for name in settings_changed_by(Origin.OVERRIDE, env):
        yield setting_finding(RULE, name, env, plan)
