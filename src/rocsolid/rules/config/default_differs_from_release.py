"""The installed torch ships another default than the release it calls itself.

## What it does
For every setting in a config file that is not the release's, compares the default that its source gives with the default
of the official release.

## Why it matters
This is the one way of moving a default that leaves no trace in the environment, in start-up files or in the program.

## Example
    max_autotune = True        # in the image's copy of torch/_inductor/config.py

## Use instead
Apply a profile: `rs.apply`, `rs.compile` and `rocsolid run` set the value whatever the default is.

## When to allow it
With a build of your own, or a vendor's, whose choice you know.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import found, moved_by
from rocsolid.rules.config import config_file_changed

RULE = Rule(
    code="CFG007",
    name="default-differs-from-release",
    severity=Severity.WARNING,
    message="the installed config source makes {subject} {value}; the official release ships {upstream}",
    why="{hazard}",
    fix="in the thread that compiles, before the first compile: {python}",
    check="rocsolid settings --live {subject}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting whose shipped default is another, with the changed file as its cause."""
    files = {file.owner: file.file for file in env.torch.files} if env.torch else {}
    for name in moved_by(Origin.PATCHED, env):
        file = files.get(name.partition(".")[0], "")
        yield found(RULE, name, env, plan, cause=f"{config_file_changed.RULE.code}:{file}")
