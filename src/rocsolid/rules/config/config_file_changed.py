"""A torch config file differs from the file of the official release.

## What it does
Compares each config file with the hash of the official release, then with the hash recorded in its wheel. If the wheel
has no record, as in some repackaged images, it evaluates the file and compares its defaults with those of the release
one by one.

## Why it matters
From inside the program, a changed default looks unchanged: `config._is_default()` returns True. A difference is not
always a mistake: vendor builds and forks have their own sources.

## Example
    torch/_inductor/config.py does not match the hash in its wheel

## Use instead
Reinstall a build you trust, or set the values you need with a profile.

## When to allow it
With your own build, or a vendor's.
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
    why="{count} of its defaults differ from {release}. Changed defaults look like the release's defaults from inside the program.",
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
    """Every file that differs from the release; INFO if the build recorded it like that and its defaults are equal."""
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
