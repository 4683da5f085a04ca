"""Look up settings by id, former id or environment variable."""

from functools import cache

from rocsolid.catalog import compile as compile_
from rocsolid.catalog import dynamo, inductor, process
from rocsolid.errors import UnknownNameError
from rocsolid.model.setting import Owner, Setting


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting in the catalogue; raises ValueError if a name is declared twice."""
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
    """All settings by id, by former id and by the name of their environment variable."""
    by_name: dict[str, Setting] = {}
    for setting in all_settings():
        for name in (setting.name, *setting.former_names):
            by_name[f"{setting.owner.value}.{name}"] = setting
            if setting.owner is Owner.PROCESS:
                by_name.setdefault(name, setting)
        if setting.variable:
            by_name.setdefault(setting.variable.name, setting)
    return by_name


def find(name: str) -> Setting | None:
    """The setting with this id, former id or environment variable, or None."""
    return _by_name().get(name)


def find_short(name: str) -> tuple[Setting, ...]:
    """The settings whose id ends with `.name`: `max_autotune` finds `inductor.max_autotune`."""
    return tuple(setting for setting in all_settings() if setting.id.endswith(f".{name}"))


def setting(name: str) -> Setting:
    """The setting with this id, former id or environment variable; raises UnknownNameError with similar names."""
    found = find(name)
    if found is None:
        raise UnknownNameError(kind="setting", name=name, known=_by_name())
    return found
