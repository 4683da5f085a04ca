"""Find the value in effect of every compiler setting, the default of the release, and what changed the value."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rocsolid.model.environment import CheckResult, CheckStatus, Integrity, Origin, SettingValue, TorchBuild
from rocsolid.process.run_command import Command, run_with_deadline
from rocsolid.torchapi.config import live, read_in_child
from rocsolid.torchapi.config.source import UNREADABLE, Build, SourceEntry, alias_id, read_configs
from rocsolid.torchapi.config.upstream import to_json_value, upstream

LIVE_DEADLINE_S = 180.0


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """The settings in an interpreter that has imported torch's compiler: this one, or a fresh one."""

    entries: Mapping[str, live.LiveEntry]  # by setting id
    # The last assignment to each setting id: its phase (such as `import vllm`) and its file:line.
    writes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    other_threads: Mapping[str, object] = field(default_factory=dict)  # values in other threads or tasks, by id
    failed_imports: Mapping[str, str] = field(default_factory=dict)  # the error of each package whose import failed


@dataclass(frozen=True)
class _Sources:
    """The entries of torch's config files, evaluated twice: without environment variables and with the user's."""

    without_variables: Mapping[str, SourceEntry]
    with_variables: Mapping[str, SourceEntry]


def read_settings(
    build: TorchBuild, variables: Mapping[str, str], live: LiveSettings | None
) -> tuple[dict[str, SettingValue], list[str]]:
    """Return every setting by id, and the ids of the settings that cannot be read without importing torch."""
    config_build = Build(version=build.version, hip=build.hip or None, cuda=build.cuda or None)
    sources = _Sources(*read_configs(Path(build.folder), [{}, variables], config_build))
    names = sources.without_variables.keys() | (live.entries.keys() if live else set())
    release_defaults = _release_defaults(build, sources.without_variables)
    overrides = dict(_compile_overrides(sources.without_variables, variables))
    settings, unreadable = {}, []
    for name in sorted(names):
        setting = _read_one(name, sources, live, release_defaults.get(name, UNREADABLE), variables)
        if setting is None:
            unreadable.append(name)
            continue
        if name in overrides:
            variable, value = overrides[name]
            setting = replace(setting, value=value, origin=Origin.OVERRIDE, set_by=variable)
        settings[name] = setting
    return settings, unreadable


def read_in_fresh_interpreter(
    imports: Sequence[str], deadline_s: float = LIVE_DEADLINE_S
) -> tuple[CheckResult, LiveSettings | None]:
    """Read the settings in a fresh interpreter, after its start-up files and the given imports have run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "settings.json"
        reply = run_with_deadline(
            Command(name="live settings", command=read_in_child.command(str(file), imports), deadline_s=deadline_s)
        )
        if reply.check.status is not CheckStatus.OK or not file.exists():
            return reply.check, None
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return reply.check, LiveSettings(
        entries={name: live.LiveEntry(**entry) for name, entry in document["entries"].items()},
        writes={write["id"]: (write["phase"], write["location"]) for write in document["writes"]},
        failed_imports=document["failed"],
    )


def read_in_this_process() -> LiveSettings | None:
    """Read the settings of this process; None if it has not imported torch's compiler. Nothing is imported."""
    modules = live.imported_modules()
    if not modules:
        return None
    return LiveSettings(
        entries=live.read_entries(modules), other_threads=dict(live.overrides_in_other_contexts(modules))
    )


def _read_one(
    name: str, sources: _Sources, live: LiveSettings | None, release_default: object, variables: Mapping[str, str]
) -> SettingValue | None:
    default_entry, entry = sources.without_variables.get(name), sources.with_variables.get(name)
    installed_default = to_json_value(default_entry.value) if default_entry else UNREADABLE
    running = live.entries.get(name) if live else None
    value = to_json_value(running.value) if running else to_json_value(entry.value) if entry else UNREADABLE
    if value is UNREADABLE:
        return None
    if installed_default is UNREADABLE:  # the source cannot be evaluated: use the default that running torch reports
        installed_default = to_json_value(running.default) if running else value
    default = installed_default if release_default is UNREADABLE else release_default
    alias = (default_entry.alias if default_entry else "") or (running.alias if running else "")
    setting = SettingValue(value=value, default=default, alias_of=alias_id(alias))
    origin, set_by = (Origin.DEFAULT, "") if value == default else _find_origin(name, sources, live, variables)
    if value != default and origin is Origin.DEFAULT:
        origin = Origin.PATCHED if value == installed_default else Origin.MUTATED
    other_value, other_threads = _other_threads(name, setting, running, live)
    if other_threads and origin is Origin.DEFAULT:
        origin = Origin.OTHER_THREAD
    return replace(setting, origin=origin, set_by=set_by, other_thread_value=other_value, other_threads=other_threads)


def _other_threads(
    name: str, setting: SettingValue, running: live.LiveEntry | None, live: LiveSettings | None
) -> tuple[object, str]:
    """Return the value in other threads of this process, if it differs, and which threads these are."""
    if live and name in live.other_threads:
        return to_json_value(live.other_threads[name]), "another thread or task"
    if running and not (live and live.writes) and to_json_value(running.in_new_thread) != setting.value:
        return to_json_value(running.in_new_thread), "every new thread"
    return None, ""


def _find_origin(
    name: str, sources: _Sources, live: LiveSettings | None, variables: Mapping[str, str]
) -> tuple[Origin, str]:
    """Return what set a value that is not the default of the release; checked in torch's order of precedence."""
    default_entry, entry = sources.without_variables.get(name), sources.with_variables.get(name)
    running = live.entries.get(name) if live else None
    if entry and entry.forced:
        return Origin.FORCED, _first_variable_set(entry.forcing_variables, variables)
    if running and running.assigned:
        target = alias_id(running.alias) or name
        phase, location = live.writes.get(target, ("", "")) if live else ("", "")
        origin = Origin.STARTUP if phase == "startup" else Origin.LIBRARY if phase else Origin.ASSIGNED
        return origin, f"{location} ({phase})" if phase.startswith("import") else location
    changed_by_variable = entry and default_entry and to_json_value(entry.value) != to_json_value(default_entry.value)
    if (
        entry
        and changed_by_variable
        and (running is None or to_json_value(running.value) == to_json_value(entry.value))
    ):
        return Origin.VARIABLE, _first_variable_set(entry.variables, variables)
    return Origin.DEFAULT, ""


def _first_variable_set(names: Sequence[str], variables: Mapping[str, str]) -> str:
    return next((name for name in names if name in variables), "")


def _release_defaults(build: TorchBuild, entries: Mapping[str, SourceEntry]) -> dict[str, object]:
    """The defaults of the official release, for the settings of config files that differ from the official ones.

    The defaults in an unchanged file are not included: they are read from the installed source, because some of them
    depend on the machine.
    """
    release = upstream(build.version)
    if release is None:
        return {}
    unchanged = {file.owner for file in build.files if file.integrity is Integrity.RELEASED}
    defaults = {}
    for name in entries:
        if name.partition(".")[0] in unchanged:
            continue
        try:
            defaults[name] = release.default(name, hip=bool(build.hip))
        except KeyError:
            continue
    return defaults


def _compile_overrides(
    entries: Mapping[str, SourceEntry], variables: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, object]]]:
    """Yield id, variable and value of each setting in TORCH_COMPILE_OVERRIDE_*.

    Such a variable has the format `>=0:key=value,key=value;...`.
    """
    for owner, entry in live.OVERRIDE_ENTRIES.items():
        variable = next(iter(entries[entry].variables), "") if entry in entries else ""
        for rule in variables.get(variable, "").split(";"):
            for pair in rule.partition(":")[2].split(","):
                key, equals, text = pair.partition("=")
                if equals:
                    yield f"{owner}.{key.strip()}", (variable, _parse_value(text.strip()))


def _parse_value(text: str) -> object:
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return {"True": True, "False": False, "None": None}.get(text, text)
