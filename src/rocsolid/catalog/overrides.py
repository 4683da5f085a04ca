"""Override single values of a plan with environment variables, for example to compare two values of one setting.

`ROCSOLID_INDUCTOR_MAX_AUTOTUNE=1` sets `inductor.max_autotune`: the name is `ROCSOLID_` and the id of the setting in
capitals, with underscores instead of dots.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rocsolid.catalog.registry import all_settings
from rocsolid.errors import PlanError, UnknownNameError
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Setting, Value

PREFIX: Final = "ROCSOLID_"
# Other variables of rocsolid. They do not override a setting.
OTHER_VARIABLES: Final = frozenset(
    PREFIX + name
    for name in (
        "KIT",
        "LEDGER",
        "CI",
        "DEBUG",
        "NATIVE",
        "TRIAL",
        "GPU_CASES",
        "GPU_CASES_DEADLINE",
        "RUN_BEST_EFFORT",
        "RUN_PROFILE",
        "RUN_PLAN",
        "RUN_DEADLINE",
        "RUN_REPORT",
        "RUN_PACKAGE_FOLDER",
        "RUN_IGNORE_PLATFORM",
        "RUN_PRETEND",
    )
)
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def variable_of(setting: Setting) -> str:
    """The name of the environment variable that overrides a setting."""
    return PREFIX + setting.id.replace(".", "_").upper()


def apply_overrides(plan: Plan, variables: Mapping[str, str]) -> Plan:
    """Return the plan with the values of the `ROCSOLID_*` variables; an unknown variable raises UnknownNameError."""
    overrides = {
        name: text for name, text in variables.items() if name.startswith(PREFIX) and name not in OTHER_VARIABLES
    }
    if not overrides:
        return plan
    setting_by_variable = {variable_of(setting): setting for setting in all_settings()}
    decisions = {d.id: d for d in plan}
    for name, text in overrides.items():
        setting = setting_by_variable.get(name)
        if setting is None:
            raise UnknownNameError(
                kind="environment variable", name=name, known=[*setting_by_variable, *OTHER_VARIABLES]
            )
        decisions[setting.id] = Decision(
            id=setting.id,
            value=parse_value(setting, name, text),
            channel=setting.channel,
            why=f"{name} is set in the environment.",
            profile="variable",
            guard=True,
        )
    return replace(plan, decisions=tuple(decisions.values()))


def parse_value(setting: Setting, name: str, text: str) -> Value:
    """Parse the text of a setting's value.

    A wrong text raises PlanError; `name` is the variable or the option in its message.
    """
    lowered = text.strip().lower()
    if lowered in ("none", ""):
        return None
    if setting.value_type is bool:
        if lowered in _TRUE or lowered in _FALSE:
            return lowered in _TRUE
    elif setting.value_type is int:
        if lowered.lstrip("-").isdigit():
            return int(lowered)
    else:
        return text
    msg = f"{name}={text!r}: {setting.id} must be {'1 or 0' if setting.value_type is bool else 'a whole number'}"
    raise PlanError(msg)
