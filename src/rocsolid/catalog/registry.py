"""All settings, by id."""

from functools import cache

from rocsolid.catalog import compile as compile_
from rocsolid.catalog import dynamo, inductor, process
from rocsolid.errors import UnknownNameError
from rocsolid.model.setting import Owner, Setting


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting we speak of, in the order of the tables; refuses a name declared twice."""
    settings = (*inductor.SETTINGS, *dynamo.SETTINGS, *compile_.SETTINGS, *process.SETTINGS)
    seen: set[str] = set()
    for setting in settings:
        for name in (setting.id, *(f"{setting.owner.value}.{former}" for former in setting.former_names)):
            if name in seen:
                msg = f"{name} is declared twice"
                raise ValueError(msg)
            seen.add(name)
    return settings


@cache
def _by_name() -> dict[str, Setting]:
    """Settings by id, by former id, and variables by their bare name."""
    found: dict[str, Setting] = {}
    for setting in all_settings():
        for name in (setting.name, *setting.former_names):
            found[f"{setting.owner.value}.{name}"] = setting
            if setting.owner is Owner.PROCESS:
                found.setdefault(name, setting)
        if setting.variable:
            found.setdefault(setting.variable.name, setting)
    return found


def find(name: str) -> Setting | None:
    """The setting of that id, former id or variable."""
    return _by_name().get(name)


def find_short(name: str) -> tuple[Setting, ...]:
    """The settings whose id ends with `.name`: `max_autotune` finds `inductor.max_autotune`."""
    return tuple(setting for setting in all_settings() if setting.id.endswith(f".{name}"))


def setting(name: str) -> Setting:
    """As `find`, but raises UnknownNameError with the near matches."""
    found = find(name)
    if found is None:
        raise UnknownNameError(kind="setting", name=name, known=_by_name())
    return found
