"""Helpers for the rules about changed settings: how harmful a value is on this machine, and how to restore the default."""

from collections.abc import Iterator

from rocsolid.catalog import registry
from rocsolid.model.environment import Environment, Origin, SettingValue
from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Finding, FixCommands, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.setting import Setting, same

_NO_KNOWN_HARM = "No problem with this value is known, but the release was built and tested with its default."


def settings_changed_by(origin: Origin, env: Environment) -> Iterator[str]:
    """The ids of the settings whose value has this origin. Of a setting and its aliases, only one is returned."""
    from rocsolid.torchapi.config.live import OVERRIDE_ENTRIES  # not needed to show a rule's page

    aliases: dict[str, list[str]] = {}
    for name, observed in env.settings.items():
        if observed.origin is origin and name not in OVERRIDE_ENTRIES.values():
            aliases.setdefault(observed.alias_of or name, []).append(name)
    for target, names in aliases.items():
        known = (name for name in names if (setting := registry.find(name)) and setting.id == name)
        yield next(known, target if target in names else names[0])


def setting_finding(
    rule: Rule, name: str, env: Environment, plan: Plan, *, cause: str = "", what_set_it: str = ""
) -> Finding:
    """A finding about a changed setting.

    The catalogue gives the severity of the value on this machine. If the rule has evidence of its own, the severity is at
    least that of the rule.
    """
    observed = env.settings[name]
    setting = registry.find(name)
    severity, why, evidence = assess_value(setting, observed.value, env)
    if rule.evidence:
        severity, evidence = max(severity, rule.severity), (*rule.evidence, *evidence)
    decision = plan.get(setting.id) if setting else None
    wanted = decision.value if decision and not same(decision.value, observed.value) else observed.default
    return rule.found(
        name,
        severity=severity,
        evidence=evidence,
        fix_commands=_fix_commands(name, observed, wanted),
        cause=cause,
        location=observed.set_by.partition(" (")[0] if observed.origin in (Origin.STARTUP, Origin.LIBRARY) else "",
        value=repr(observed.value),
        release_default=repr(observed.default),
        wanted=repr(wanted),
        set_by=observed.set_by or "an unknown source",
        harm=why,
        python_assignment=python_assignment(name, wanted),
        what_set_it=what_set_it,
    )


def assess_value(
    setting: Setting | None, value: object, env: Environment
) -> tuple[Severity, str, tuple[Evidence, ...]]:
    """Severity of a value on this machine, the reason, and the evidence."""
    hazard = setting.hazard(value, env) if setting else None
    if hazard:
        return hazard.severity, hazard.why, hazard.evidence
    if setting and setting.no_effect:
        return Severity.INFO, f"It has no effect: {setting.no_effect}", setting.evidence
    return Severity.INFO, _NO_KNOWN_HARM, setting.evidence if setting else ()


def python_assignment(name: str, value: object) -> str:
    """The Python assignment that sets the value, as a user would write it. Since torch 2.12 it affects only its own thread."""
    from rocsolid.torchapi.config.live import MODULES

    owner, _, entry = name.partition(".")
    return f"{MODULES.get(owner, owner)}.{entry} = {value!r}"


def script_assignment(name: str, value: object) -> str:
    """The same assignment, for a script that imports the config module as `inductor_config` or `dynamo_config`."""
    owner, _, entry = name.partition(".")
    return f"{owner}_config.{entry} = {value!r}"


def _fix_commands(name: str, observed: SettingValue, wanted: object) -> FixCommands:
    if observed.origin in (Origin.VARIABLE, Origin.FORCED, Origin.OVERRIDE) and observed.set_by:
        return FixCommands(unset=(observed.set_by,))
    return FixCommands(python=(script_assignment(name, wanted),))
