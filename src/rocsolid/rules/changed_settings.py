"""What the rules about moved settings share: how bad a value is here, and how to take it back."""

from collections.abc import Iterator

from rocsolid.catalog import registry
from rocsolid.model.environment import Environment, Origin, SettingValue
from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Finding, FixCommands, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.setting import Setting, same

_MODULES = {"inductor": "inductor_config", "dynamo": "dynamo_config"}
_NO_HAZARD = "It is not the value this release was made and tested with."


def moved_by(origin: Origin, env: Environment) -> Iterator[str]:
    """Settings whose value comes from there; an entry and its aliases are spoken of once, by the name in the catalogue."""
    from rocsolid.torchapi.config.live import OVERRIDE_ENTRIES  # pages are read more often than checks are run

    groups: dict[str, list[str]] = {}
    for name, observed in env.settings.items():
        if observed.origin is origin and name not in OVERRIDE_ENTRIES.values():
            groups.setdefault(observed.alias_of or name, []).append(name)
    for target, names in groups.items():
        known = (name for name in names if (setting := registry.find(name)) and setting.id == name)
        yield next(known, target if target in names else names[0])


def found(rule: Rule, name: str, env: Environment, plan: Plan, *, cause: str = "", how: str = "") -> Finding:
    """A finding about a moved setting: as severe as its value is here, and at least what the rule's own evidence says."""
    observed = env.settings[name]
    setting = registry.find(name)
    severity, why, evidence = weigh(setting, observed.value, env)
    if rule.evidence:
        severity, evidence = max(severity, rule.severity), (*rule.evidence, *evidence)
    decision = plan.get(setting.id) if setting else None
    wanted = decision.value if decision and not same(decision.value, observed.value) else observed.default
    return rule.found(
        name,
        severity=severity,
        evidence=evidence,
        fix_commands=_remedy(name, observed, wanted),
        cause=cause,
        place=observed.set_by.partition(" (")[0] if observed.origin in (Origin.STARTUP, Origin.LIBRARY) else "",
        value=repr(observed.value),
        upstream=repr(observed.default),
        wanted=repr(wanted),
        by=observed.set_by or "something unknown",
        hazard=why,
        python=python_line(name, wanted),
        how=how,
    )


def weigh(setting: Setting | None, value: object, env: Environment) -> tuple[Severity, str, tuple[Evidence, ...]]:
    """How bad a value is on this machine, why, and by what evidence."""
    hazard = setting.hazard(value, env) if setting else None
    if hazard:
        return hazard.severity, hazard.why, hazard.evidence
    if setting and setting.inert:
        return Severity.INFO, f"It has no effect: {setting.inert}", setting.evidence
    return Severity.INFO, _NO_HAZARD, setting.evidence if setting else ()


def python_line(name: str, value: object) -> str:
    """The assignment that sets the value, for the thread that compiles."""
    owner, _, entry = name.partition(".")
    return f"{_MODULES.get(owner, owner + '_config')}.{entry} = {value!r}"


def _remedy(name: str, observed: SettingValue, wanted: object) -> FixCommands:
    if observed.origin in (Origin.VARIABLE, Origin.FORCED, Origin.OVERRIDE) and observed.set_by:
        return FixCommands(unset=(observed.set_by,))
    return FixCommands(python=(python_line(name, wanted),))
