"""TORCH_COMPILE_OVERRIDE_* replaces a compiler setting, whatever the program sets.

## What it does
Reads `TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS` and `TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS` as torch does, and lists the
settings they replace.

## Why it matters
The variable was made for bisecting. From torch 2.12 on, it overrides modes and options; on 2.11, modes and options
still win. No config module shows it, and every backend except Inductor fails with it.

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

_BREAKS = measured(
    "compiler-facts-torch-2.13-cpu", "It beat options given to the call, and a backend other than Inductor failed."
)

RULE = Rule(
    code="CFG003",
    name="setting-replaced-by-override",
    severity=Severity.WARNING,
    message="{by} replaces `{subject}` with {value} (release default: {upstream})",
    why="It applies to the graphs it names, overrides Python, modes and options (torch 2.12 and later), and breaks backends other than Inductor. {hazard}",
    fix="unset {by}",
    check="rocsolid probe",
    since="0.1",
    autofix=Autofix.ASK,
    evidence=(_BREAKS,),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that is replaced; at least a warning."""
    for name in settings_changed_by(Origin.OVERRIDE, env):
        yield setting_finding(RULE, name, env, plan)
