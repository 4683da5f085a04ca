"""Importing a package changed a compiler setting.

## What it does
`rocsolid probe --live --import PACKAGE` records every assignment to torch's config modules during the import, and
reports file and line.

## Why it matters
Serving libraries change settings for the whole process: one changes the number of compile threads, another enables
coordinate descent and raises the recompile limit to 1024. Your own model, compiled in the same process, then uses
these settings too.

## Example
    $ rocsolid probe --live --import vllm

## Use instead
Compile with `rs.compile`: its settings belong to the compiled function, and an import cannot change them.

## When to allow it
When you run your model with that package.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import setting_finding, settings_changed_by

RULE = Rule(
    code="CFG005",
    name="setting-changed-by-library",
    severity=Severity.WARNING,
    message="{set_by} sets `{subject}` to {value} (release default: {release_default})",
    why="{harm}",
    fix="After the import, in the thread that compiles: {python_assignment}",
    check="rocsolid probe --live --import PACKAGE",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that an import assigned."""
    for name in settings_changed_by(Origin.LIBRARY, env):
        yield setting_finding(RULE, name, env, plan)
