"""An environment variable forces a compiler setting; Python code cannot change it.

## What it does
Finds settings that an environment variable forces, so that assignments have no effect. Torch has about twenty such
variables; most others only change a default.

## Why it matters
While `TORCHINDUCTOR_FX_GRAPH_CACHE=0` is set, `config.fx_graph_cache = True` is accepted without a warning and does
nothing. Guides say that environment variables override assignments in Python; this is true for these variables and
false for most others.

## Example
    $ export TORCHINDUCTOR_FORCE_DISABLE_CACHES=1     # every start compiles everything again

## Use instead
    unset TORCHINDUCTOR_FORCE_DISABLE_CACHES

## When to allow it
When you force it on purpose, for example to reproduce a cold start.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Autofix, Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import setting_finding, settings_changed_by

RULE = Rule(
    code="CFG002",
    name="setting-forced-by-variable",
    severity=Severity.WARNING,
    message="Environment variable {set_by} forces `{subject}` to {value} (release default: {release_default})",
    why="{harm} While the variable is set, no assignment and no option can change the setting.",
    fix="unset {set_by}",
    check="rocsolid settings --live {subject}",
    since="0.1",
    autofix=Autofix.ASK,
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that a variable forces."""
    for name in settings_changed_by(Origin.FORCED, env):
        yield setting_finding(RULE, name, env, plan)
