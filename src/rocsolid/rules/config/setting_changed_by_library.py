"""Importing a package assigned a compiler setting.

## What it does
On the live route, watches every assignment to torch's config modules while the packages named with `--import` are
imported, and names the file and line.

## Why it matters
Serving libraries set what suits them, for the whole process: one changes the number of compile threads, another switches
on coordinate descent and raises the recompile limit to 1024. A model compiled beside them is compiled under their
settings.

## Example
    $ rocsolid probe --live --import vllm

## Use instead
Pass settings with the function (`rs.compile`), which no import can move.

## When to allow it
When the package is the one you serve with.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import found, moved_by

RULE = Rule(
    code="CFG005",
    name="setting-changed-by-library",
    severity=Severity.WARNING,
    message="{by} makes {subject} {value}; this release ships {upstream}",
    why="{hazard}",
    fix="undo it after the import, in the thread that compiles: {python}",
    check="rocsolid probe --live --import PACKAGE",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that an import assigned."""
    for name in moved_by(Origin.LIBRARY, env):
        yield found(RULE, name, env, plan)
