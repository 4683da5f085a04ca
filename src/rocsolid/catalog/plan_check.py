"""A plan is data: check that it contains only settings of the catalogue, with values that cannot load code.

A plan file may come from somebody else. What it sets ends in environment variables and in the compiler's options, and some of
these name programs and libraries to run.
"""

import re
from typing import Final

from rocsolid.catalog.registry import find
from rocsolid.errors import PlanError
from rocsolid.model.form import Form
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Owner, Setting

# Words, numbers and lists of them, such as `ATEN,TRITON` or `expandable_segments:True`: no path, no space, no quote.
_PLAIN_TEXT: Final = re.compile(r"[A-Za-z0-9_+.,:\[\]-]{0,200}")
_LARGEST_NUMBER: Final = 2**31
_MAX_TUNABLEOP_CHARS: Final = 4_000_000
_FORM_IDS: Final = frozenset(form.id for form in Form)


def check_plan(plan: Plan, name: str = "the plan") -> Plan:
    """Return the plan; raises PlanError with the setting, its value and the reason if it must not be used."""
    seen: set[str] = set()
    for decision in plan:
        problem = "it is in the plan twice" if decision.id in seen else _problem(decision)
        seen.add(decision.id)
        if problem:
            value = repr(decision.value)
            shown = value if len(value) <= 80 else f"{value[:79]}…"  # noqa: PLR2004
            msg = f"{name}: {decision.id[:80]!r} = {shown} is refused: {problem}"
            raise PlanError(msg)
    tuned = plan.tuned
    if tuned and (tuned.form not in _FORM_IDS or len(tuned.tunableop) > _MAX_TUNABLEOP_CHARS):
        what = (
            "tuned.tunableop is too long"
            if tuned.form in _FORM_IDS
            else f"tuned.form = {tuned.form[:80]!r} is not a form"
        )
        msg = f"{name}: {what}"
        raise PlanError(msg)
    return plan


def _problem(decision: Decision) -> str:
    setting = find(decision.id)
    if setting is None or decision.id not in _ids(setting):
        return "it is not a setting of the catalogue; `rocsolid settings` lists them"
    if decision.channel is not setting.channel:
        return f"its channel is {setting.channel.value}, not {decision.channel.value}"
    return _value_problem(setting, decision.value)


def _ids(setting: Setting) -> tuple[str, ...]:
    return tuple(f"{setting.owner.value}.{name}" for name in (setting.name, *setting.former_names))


def _value_problem(setting: Setting, value: object) -> str:
    known = (*setting.candidates, *(r.value for r in setting.recommendations))
    if value is None:
        return "" if setting.owner is Owner.PROCESS or None in known else "the value is missing"
    if type(value) is not setting.value_type:
        return f"the value must be of type {setting.value_type.__name__}, not {type(value).__name__}"
    if isinstance(value, int) and abs(value) > _LARGEST_NUMBER:
        return f"the value must be between -{_LARGEST_NUMBER} and {_LARGEST_NUMBER}"
    if setting.names_file and value not in known:
        return "its value names files or programs to load, and is never taken from a plan; set the variable yourself"
    if isinstance(value, str) and not _PLAIN_TEXT.fullmatch(value):
        return "the value may contain only letters, digits and _ + . , : - [ ]"
    return ""
