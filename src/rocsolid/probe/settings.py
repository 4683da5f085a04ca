"""Finds every compiler setting's effective value, the release's default, and who is behind the difference."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rocsolid.model.environment import Answer, Ending, Integrity, Observed, Origin, TorchBuild
from rocsolid.process.run_command import Command, run_with_deadline
from rocsolid.torchapi.config import live, read_in_child
from rocsolid.torchapi.config.source import UNREADABLE, Build, SourceEntry, alias_id, read_configs
from rocsolid.torchapi.config.upstream import plain, upstream

LIVE_DEADLINE_S = 180.0


@dataclass(frozen=True, kw_only=True)
class Live:
    """What a running interpreter says: this one, or a fresh one we started."""

    entries: Mapping[str, live.LiveEntry]
    writes: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # id to phase and place of the last assignment
    elsewhere: Mapping[str, object] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sources:
    """What the installed files give: without any variable, and with the user's."""

    shipped: Mapping[str, SourceEntry]
    moved: Mapping[str, SourceEntry]


def observe(
    build: TorchBuild, variables: Mapping[str, str], live: Live | None
) -> tuple[dict[str, Observed], list[str]]:
    """Every setting by id, and the ids whose value only an import could tell."""
    given = Build(version=build.version, hip=build.hip or None, cuda=build.cuda or None)
    sources = _Sources(*read_configs(Path(build.folder), [{}, variables], given))
    names = sources.shipped.keys() | (live.entries.keys() if live else set())
    released = _release_defaults(build, sources.shipped)
    overrides = dict(_overrides(sources.shipped, variables))
    found, missed = {}, []
    for name in sorted(names):
        observed = _observe_one(name, sources, live, released.get(name, UNREADABLE), variables)
        if observed is None:
            missed.append(name)
            continue
        if name in overrides:
            variable, value = overrides[name]
            observed = replace(observed, value=value, origin=Origin.OVERRIDE, by=variable)
        found[name] = observed
    return found, missed


def live_from_child(imports: Sequence[str], deadline_s: float = LIVE_DEADLINE_S) -> tuple[Answer, Live | None]:
    """Ask a fresh interpreter, in which start-up files and the given imports have run for real."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        reply = run_with_deadline(
            Command(name="live settings", command=read_in_child.command(str(file), imports), deadline_s=deadline_s)
        )
        if reply.check.ending is not Ending.ANSWERED or not file.exists():
            return reply.check, None
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return reply.check, Live(
        entries={name: live.LiveEntry(**entry) for name, entry in document["entries"].items()},
        writes={write["id"]: (write["phase"], write["location"]) for write in document["writes"]},
        failed=document["failed"],
    )


def live_from_here() -> Live | None:
    """What this process has imported already; nothing is imported for it."""
    modules = live.imported_modules()
    if not modules:
        return None
    return Live(entries=live.read_entries(modules), elsewhere=dict(live.overrides_in_other_contexts(modules)))


def _observe_one(
    name: str, sources: _Sources, live: Live | None, released: object, variables: Mapping[str, str]
) -> Observed | None:
    shipped, moved = sources.shipped.get(name), sources.moved.get(name)
    default = plain(shipped.value) if shipped else UNREADABLE
    with_variables = plain(moved.value) if moved else UNREADABLE
    running = live.entries.get(name) if live else None
    value = plain(running.value) if running else with_variables
    if value is UNREADABLE:
        return None
    if default is UNREADABLE:  # only the running torch knows: what it calls its default is all there is
        default = with_variables = plain(running.default) if running else value
    upstream_default = default if released is UNREADABLE else released
    alias = (shipped.alias if shipped else "") or (running.alias if running else "")
    observed = Observed(value=value, upstream=upstream_default, stands_for=alias_id(alias))
    origin, by = (Origin.UPSTREAM, "") if value == upstream_default else _blame(name, sources, live, variables)
    if value != upstream_default and origin is Origin.UPSTREAM:
        origin = Origin.PATCHED if value == default else Origin.MUTATED
    seen, where = _elsewhere(name, observed, running, live)
    if where and origin is Origin.UPSTREAM:
        origin = Origin.ELSEWHERE
    return replace(observed, origin=origin, by=by, elsewhere=seen, where=where)


def _elsewhere(name: str, observed: Observed, running: live.LiveEntry | None, live: Live | None) -> tuple[object, str]:
    """What other threads of this process see, where that differs, and which threads."""
    if live and name in live.elsewhere:
        return plain(live.elsewhere[name]), "another thread or task"
    if running and not (live and live.writes) and plain(running.in_new_thread) != observed.value:
        return plain(running.in_new_thread), "every new thread"
    return None, ""


def _blame(name: str, sources: _Sources, live: Live | None, variables: Mapping[str, str]) -> tuple[Origin, str]:
    """Who is behind a value that is not the release's, in torch's own order of precedence."""
    shipped, moved = sources.shipped.get(name), sources.moved.get(name)
    running = live.entries.get(name) if live else None
    if moved and moved.forced:
        return Origin.FORCED, _first_set(moved.forcing_variables, variables)
    if running and running.assigned:
        target = alias_id(running.alias) or name
        phase, place = live.writes.get(target, ("", "")) if live else ("", "")
        origin = Origin.STARTUP if phase == "startup" else Origin.LIBRARY if phase else Origin.ASSIGNED
        return origin, f"{place} ({phase})" if phase.startswith("import") else place
    moves = moved and shipped and plain(moved.value) != plain(shipped.value)
    if moved and moves and (running is None or plain(running.value) == plain(moved.value)):
        return Origin.VARIABLE, _first_set(moved.variables, variables)
    return Origin.UPSTREAM, ""


def _first_set(names: Sequence[str], variables: Mapping[str, str]) -> str:
    return next((name for name in names if name in variables), "")


def _release_defaults(build: TorchBuild, shipped: Mapping[str, SourceEntry]) -> dict[str, object]:
    """The release's own defaults, where the installed file is not the release's file.

    For an untouched file the source in front of us is the better witness: it was evaluated on this very machine.
    """
    table = upstream(build.version)
    if table is None:
        return {}
    untouched = {file.owner for file in build.files if file.integrity is Integrity.RELEASED}
    defaults = {}
    for name in shipped:
        if name.partition(".")[0] in untouched:
            continue
        try:
            defaults[name] = table.default(name, hip=bool(build.hip))
        except KeyError:
            continue
    return defaults


def _overrides(
    shipped: Mapping[str, SourceEntry], variables: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, object]]]:
    """Settings that TORCH_COMPILE_OVERRIDE_* replaces, on a torch that knows it: `>=0:key=value,key=value;...`."""
    for owner, entry in live.OVERRIDE_ENTRIES.items():
        variable = next(iter(shipped[entry].variables), "") if entry in shipped else ""
        for rule in variables.get(variable, "").split(";"):
            for pair in rule.partition(":")[2].split(","):
                key, equals, text = pair.partition("=")
                if equals:
                    yield f"{owner}.{key.strip()}", (variable, _literal(text.strip()))


def _literal(text: str) -> object:
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return {"True": True, "False": False, "None": None}.get(text, text)
