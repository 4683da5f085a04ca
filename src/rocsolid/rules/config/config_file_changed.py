"""A torch config file differs from the file of the official release.

## What it does
Compares the hash of each config file with that of the official release, then with the hash recorded in its wheel. If
the wheel records no hash, as in some repackaged images, evaluates the file and compares each default with that of the
release.

## Why it matters
A program cannot see that a default was changed: `config._is_default()` still returns True. A difference is not always
a mistake: vendor builds and forks have their own sources.

## Example
    torch/_inductor/config.py does not match the hash in its wheel

## Use instead
Reinstall a build you trust, or set the values you need with a profile.

## When to allow it
When you use your own build of torch, or a vendor's.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment, Integrity, Origin
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="CFG006",
    name="config-file-changed",
    severity=Severity.WARNING,
    message="torch/{subject} {verdict}",
    why="{count} of its defaults differ from {release}. A program cannot see this: torch treats a changed default like the original one.",
    fix="Reinstall a build you trust, or apply a profile, which sets the values it needs.",
    check="rocsolid probe",
    since="0.1",
)

_VERDICTS = {
    Integrity.DIFFERS_FROM_WHEEL: "was edited after installation (its wheel records another hash)",
    Integrity.DIFFERS_FROM_RELEASE: "differs from the official release, and its wheel records no hash for it",
    Integrity.RECORDED: "differs from the official release, but matches its own wheel",
}


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Every file that differs from the release; INFO if it was not edited and its defaults are those of the release."""
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
        edited = file.integrity is Integrity.DIFFERS_FROM_WHEEL
        yield RULE.found(
            file.file,
            severity=Severity.WARNING if edited or changed else Severity.INFO,
            verdict=_VERDICTS[file.integrity],
            count=len(changed),
            release=f"torch {env.torch.known_release}" if env.torch.known_release else "every known release",
            settings=changed,
        )
