"""An environment variable forces a compiler setting, and no assignment can change it.

## What it does
Finds settings whose variable has the rank of a force. Torch has about twenty of them; most variables only move a
default.

## Why it matters
`config.fx_graph_cache = True` is accepted without a word and does nothing while `TORCHINDUCTOR_FX_GRAPH_CACHE=0`.
Guides say that variables override Python; for most that is wrong, for these it is right.

## Example
    $ export TORCHINDUCTOR_FORCE_DISABLE_CACHES=1     # every start compiles everything again

## Use instead
    unset TORCHINDUCTOR_FORCE_DISABLE_CACHES

## When to allow it
When you force it on purpose, to reproduce a cold start for instance.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Autofix, Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import found, moved_by

RULE = Rule(
    code="CFG002",
    name="setting-forced-by-variable",
    severity=Severity.WARNING,
    message="the environment variable {by} forces {subject} to {value}; this release ships {upstream}",
    why="{hazard} No assignment and no option can change it while the variable is set.",
    fix="unset {by}",
    check="rocsolid settings --live {subject}",
    since="0.1",
    autofix=Autofix.ASK,
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that a variable forces."""
    for name in moved_by(Origin.FORCED, env):
        yield found(RULE, name, env, plan)
