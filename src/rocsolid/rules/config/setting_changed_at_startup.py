"""Code that runs when Python starts assigned a compiler setting.

## What it does
`rocsolid probe --live` starts a new interpreter, records every assignment to torch's config modules while `.pth` files,
`sitecustomize` and `usercustomize` run, and reports file and line. Other probes cannot detect this.

## Why it matters
This code runs before every program, for everyone on the machine or in the image. Neither `env` nor `pip list` shows it.
From torch 2.12 on, its assignments apply in the main thread but not in worker threads, so a server behaves differently
from a script.

## Example
    # sitecustomize.py in a container image
    import torch._inductor.config as c
    c.max_autotune = True

## Use instead
Remove the assignment, or start Python with `-S` to run without it. `rocsolid run` sets the values of its
profile after the start-up code.

## When to allow it
When the file is yours.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import setting_finding, settings_changed_by

RULE = Rule(
    code="CFG004",
    name="setting-changed-at-startup",
    severity=Severity.WARNING,
    message="{set_by} sets `{subject}` to {value} when Python starts (release default: {release_default})",
    why="{harm}",
    fix="Remove the assignment from that file, or undo it in the thread that compiles: {python_assignment}",
    check="rocsolid probe --live",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that start-up code assigned."""
    for name in settings_changed_by(Origin.STARTUP, env):
        yield setting_finding(RULE, name, env, plan)
