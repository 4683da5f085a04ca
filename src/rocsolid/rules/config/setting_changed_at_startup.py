"""Code that runs at interpreter start assigned a compiler setting.

## What it does
Starts a fresh interpreter, watches every assignment to torch's config modules while `.pth` files, `sitecustomize` and
`usercustomize` run, and names the file and line. Seen on the live route only (`rocsolid probe --live`).

## Why it matters
Such code runs before any program, for everybody on the machine or in the image, and neither `env` nor `pip list` shows
it. From torch 2.12 on what it assigns holds in the main thread and not in worker threads, so that a server behaves
differently from a script.

## Example
    # sitecustomize.py of an image
    import torch._inductor.config as c
    c.max_autotune = True

## Use instead
Remove the assignment, or start Python with `-S` to see the machine without it. `rocsolid run` sets its own values
afterwards.

## When to allow it
When the file is yours.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import found, moved_by

RULE = Rule(
    code="CFG004",
    name="setting-changed-at-startup",
    severity=Severity.WARNING,
    message="{by} makes {subject} {value} when Python starts; this release ships {upstream}",
    why="{hazard}",
    fix="take the assignment out of that file   (or undo it in the thread that compiles: {python})",
    check="rocsolid probe --live",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting that start-up code assigned."""
    for name in moved_by(Origin.STARTUP, env):
        yield found(RULE, name, env, plan)
