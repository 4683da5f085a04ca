"""A config file of torch's is not the one of its release.

## What it does
Compares each config file with the digest of the official release, then with the digest its wheel recorded. Where the
wheel's record is empty, as in some repacked images, the file's source is evaluated and its defaults are compared with the
release's, one by one.

## Why it matters
A changed file looks like a default from inside: `config._is_default()` says yes. A difference is not an accusation: builds
of vendors and forks have their own sources.

## Example
    torch/_inductor/config.py is not as its wheel recorded it

## Use instead
Reinstall the build you trust, or set the values you want with a profile.

## When to allow it
With a build of your own, or a vendor's.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Integrity, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="CFG006",
    name="config-source-changed",
    severity=Severity.WARNING,
    message="torch/{subject} {verdict}; {count} of its defaults differ from {release}",
    why="Defaults in a changed file look untouched from inside the program.",
    fix="reinstall the build you trust, or apply a profile, which sets the values it cares about",
    check="rocsolid probe",
    since="0.1",
)

_VERDICTS = {
    Integrity.CHANGED: "was edited after it was installed (its wheel recorded another digest)",
    Integrity.DIFFERENT: "is not the file of the official release, and its wheel has no usable record",
    Integrity.RECORDED: "is as its wheel recorded it, but is not the file of the official release",
}


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every file that is not the release's; a build of its own kind, with equal defaults, is only worth a note."""
    if env.torch is None:
        return
    for file in env.torch.files:
        if file.integrity not in _VERDICTS or (file.integrity is Integrity.RECORDED and not env.torch.known_release):
            continue
        changed = [
            name
            for name, observed in env.settings.items()
            if observed.origin is Origin.PATCHED and name.startswith(f"{file.owner}.")
        ]
        edited = file.integrity is Integrity.CHANGED
        yield RULE.found(
            file.file,
            severity=Severity.WARNING if edited or changed else Severity.INFO,
            verdict=_VERDICTS[file.integrity],
            count=len(changed),
            release=f"the release {env.torch.known_release}" if env.torch.known_release else "any release we hold",
            settings=changed,
        )
