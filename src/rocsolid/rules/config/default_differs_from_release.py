"""The installed torch ships a different default than the official release of the same version.

## What it does
For every config file that differs from the release, compares each default in its source with the official default.

## Why it matters
A default that was changed in torch's source shows neither in the environment nor in start-up files nor in the program.

## Example
    max_autotune = True        # in the image's copy of torch/_inductor/config.py

## Use instead
Apply a profile: `rs.apply`, `rs.compile` and `rocsolid run` set the value whatever the default is.

## When to allow it
When you use your own build of torch or a vendor's, and know why the default is different.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.rules.changed_settings import setting_finding, settings_changed_by
from rocsolid.rules.config import config_file_changed

RULE = Rule(
    code="CFG007",
    name="default-differs-from-release",
    severity=Severity.WARNING,
    message="`{subject}` defaults to {value} in the installed torch (release default: {release_default})",
    why="{harm}",
    fix="Before the first compile, in the thread that compiles: {python_assignment}",
    check="rocsolid settings --live {subject}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:
    """Every setting whose default differs from the release; its cause is the changed file."""
    files = {file.owner: file.file for file in env.torch.files} if env.torch else {}
    for name in settings_changed_by(Origin.PATCHED, env):
        file = files.get(name.partition(".")[0], "")
        yield setting_finding(RULE, name, env, plan, cause=f"{config_file_changed.RULE.code}:{file}")
