"""Reads the files that TORCH_TRACE writes, as the same events that are recorded in a running process.

A trace is text: each entry is a line with a JSON header, followed by the lines of its payload, which start with a tab. Every process
writes its own file. A truncated file is read up to its end.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import InputError
from rocsolid.model.compile_event import (
    BreakReported,
    CacheLookup,
    CodeGenerated,
    CompileEnded,
    CompileEvent,
    CompileIdAssigned,
    CompileStarted,
    GraphTraced,
    LoweringStarted,
    MetricsReported,
    PhaseTimed,
)
from rocsolid.model.compile_log import CompileLog, GraphKind
from rocsolid.observe.break_message import LOOP_BREAK, SECOND_BREAK
from rocsolid.observe.build_log import build_log
from rocsolid.observe.graph_text import read_graph
from rocsolid.observe.kernels import graph_kind
from rocsolid.torchapi.dynamo.compile_events import BACKWARD_PHASES, SUMMARY_FACTS

_HEADER_LINE: Final = re.compile(r"^[A-Z]\d{4} \S+ (\d+) \S+\] (\{.*\})\s*$")
_BREAK: Final = re.compile(
    r"Graph break in user code at ([^\n]{1,1000}?):(\d+)\nGraph Break Reason: (.*?)(?:\nUser code traceback:|\Z)",
    re.DOTALL,
)
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_RANK: Final = re.compile(r"_rank_(\d+)_")
_CACHES: Final = re.compile(r"(fx_graph|aotautograd)_cache_(hit|miss|bypass)")
# What entries of an unexpected shape raise.
_DAMAGE: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


@dataclass
class _Reader:
    """The state of reading one file, which contains the events of one process."""

    first_unit: int
    strings: dict[int, str] = field(default_factory=dict)
    units: dict[str, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    # By thread, the phases that have started and not ended: name, start, seconds of the phases inside.
    open_phases: dict[str, list[tuple[str, float, float]]] = field(default_factory=dict)
    torch: str = ""
    unit_count: int = 0

    def unit(self, head: dict[str, Any], *, starts_compile: bool = False) -> int:
        """The unit of an entry. After `torch._dynamo.reset()` torch uses the same ids again; `starts_compile` starts a new unit for them."""
        if head.get("frame_id") is None:
            return 0
        key = f"{head.get('frame_id')}/{head.get('frame_compile_id')}"
        known = self.units.get(key, 0)
        if not known or (starts_compile and known in self.ended):
            self.unit_count += 1
            known = self.units[key] = self.first_unit + self.unit_count
        return known


def read_trace(path: Path, rank: int | None = None) -> CompileLog:
    """Return the log of a folder of traces, or of one file; raises InputError if it contains no compile.

    In a distributed run each file name contains the rank; `rank` selects the files of one.
    """
    if not path.exists():
        msg = f"{path} does not exist; pass the folder that TORCH_TRACE was set to"
        raise InputError(msg)
    files = [file for file in sorted(path.glob("*.log")) if file.is_file()] if path.is_dir() else [path]
    files = [file for file in files if rank is None or _rank(file) in (None, rank)]
    events: list[CompileEvent] = []
    torch = ""
    for file in files:
        reader = _Reader(first_unit=max((e.unit for e in events), default=0))
        events += _events(file, reader)
        torch = torch or reader.torch
    if not events:
        msg = f"{path} contains no trace of a compile; TORCH_TRACE=DIR writes files DIR/*.log"
        raise InputError(msg)
    try:
        times = [t for e in events if isinstance(e, PhaseTimed) for t in (e.start_s, e.end_s)]
        begin, end = min(times, default=0.0), max(times, default=0.0)
        started = datetime.fromtimestamp(begin, timezone.utc).isoformat(timespec="seconds")
        return build_log(events, started_s=begin, ended_s=end, started_at=started, torch=torch, source="trace")
    except (*_DAMAGE, OSError) as broken:
        msg = f"{path} is damaged: the values of its entries do not fit together ({type(broken).__name__}: {broken})"
        raise InputError(msg) from broken


def _rank(file: Path) -> int | None:
    found = _RANK.search(file.name)
    return int(found[1]) if found else None


def _entries(file: Path) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Thread, header and payload of each entry."""
    thread, head, payload = "", None, []
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("\t"):
                    payload.append(line[1:])
                elif found := _HEADER_LINE.match(line):
                    if head is not None:
                        yield thread, head, "".join(payload)
                    thread, payload = found[1], []
                    head = _json(found[2])
        if head is not None:
            yield thread, head, "".join(payload)
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise InputError(msg) from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _events(file: Path, reader: _Reader) -> Iterator[CompileEvent]:
    for thread, head, payload in _entries(file):
        with suppress(*_DAMAGE):  # a damaged entry: the others can be read
            yield from list(_entry_events(reader, thread, head, payload))


def _entry_events(reader: _Reader, thread: str, head: dict[str, Any], payload: str) -> Iterator[CompileEvent]:
    if "str" in head:
        reader.strings[head["str"][1]] = head["str"][0]
    elif "chromium_event" in head:
        yield from _phase_events(reader, head, _json(payload), thread)
    elif "dynamo_start" in head:
        yield from _start_events(reader, head, thread)
    elif "dynamo_output_graph" in head:
        graph = read_graph(payload)
        unit = reader.unit(head)
        yield GraphTraced(
            unit=unit, nodes=graph.nodes, inputs=graph.inputs, operators=graph.operators, locations=graph.locations
        )
    elif "inductor_output_code" in head:
        backward = graph_kind(payload) is GraphKind.BACKWARD
        yield CodeGenerated(unit=reader.unit(head), backward=backward, source=payload)
    elif "compilation_metrics" in head or "bwd_compilation_metrics" in head:
        yield from _metric_events(reader, head)
    elif "artifact" in head:
        yield from _artifact_events(reader, head, payload, thread)


def _start_events(reader: _Reader, head: dict[str, Any], thread: str) -> Iterator[CompileEvent]:
    stack = head["dynamo_start"].get("stack") or [{}]
    frame = stack[-1]
    caller = next((f for f in reversed(stack[:-1]) if "/torch/" not in reader.strings.get(f.get("filename"), "")), None)
    unit = reader.unit(head, starts_compile=head.get("attempt", 0) == 0)
    yield CompileIdAssigned(unit=unit, compile_id=f"{head.get('frame_id')}/{head.get('frame_compile_id')}")
    yield CompileStarted(
        unit=unit,
        at_s=0.0,
        thread=thread,
        function=str(frame.get("name", "")),
        file=reader.strings.get(frame.get("filename"), ""),
        line=int(frame.get("line", 0)),
        called_from=f"{reader.strings.get(caller['filename'], '')}:{caller['line']}" if caller else "",
    )


def _phase_events(reader: _Reader, head: dict[str, Any], event: object, thread: str) -> Iterator[CompileEvent]:
    if not isinstance(event, dict) or event.get("ph") not in ("B", "E"):
        return
    # A trace does not separate threads. Events of helper threads have no frame id; they are kept apart from the phases of the compile.
    open_phases = reader.open_phases.setdefault(thread if head.get("frame_id") is not None else "", [])
    at_s = float(event["ts"]) / 1e6
    if event["ph"] == "B":
        open_phases.append((event["name"], at_s, 0.0))
        return
    while open_phases:
        name, start_s, inner_s = open_phases.pop()
        if name == event["name"]:
            break
    else:
        return
    seconds = at_s - start_s
    if open_phases:
        outer = open_phases[-1]
        open_phases[-1] = (outer[0], outer[1], outer[2] + seconds)
    if unit := reader.unit(head):
        yield PhaseTimed(
            unit=unit,
            name=name,
            start_s=start_s,
            end_s=at_s,
            own_s=max(0.0, seconds - inner_s),
            depth=len(open_phases),
            thread=thread,
            backward=name in BACKWARD_PHASES or any(o[0] in BACKWARD_PHASES for o in open_phases),
        )


def _metric_events(reader: _Reader, head: dict[str, Any]) -> Iterator[CompileEvent]:
    backward = "bwd_compilation_metrics" in head
    metrics = head.get("bwd_compilation_metrics") or head.get("compilation_metrics") or {}
    unit = reader.unit(head)
    facts = {name: metrics[name] for name in SUMMARY_FACTS if metrics.get(name) is not None}
    if not facts.get("is_runtime"):
        yield MetricsReported(unit=unit, backward=backward, metrics=facts)
    if not backward:
        reader.ended.add(unit)
        error = f"{metrics.get('fail_type')}: {metrics.get('fail_reason')}" if metrics.get("fail_type") else ""
        yield CompileEnded(
            unit=unit, at_s=float(metrics.get("end_time_us") or 0) / 1e6, compiled=not error, error=error
        )


def _artifact_events(reader: _Reader, head: dict[str, Any], payload: str, thread: str) -> Iterator[CompileEvent]:
    name = str(head["artifact"].get("name", ""))
    backward = any(o[0] in BACKWARD_PHASES for o in reader.open_phases.get(thread, ()))
    if name == "torch_version":
        reader.torch = str((_json(payload) or {}).get("pytorch_version", ""))
    elif name in ("inductor_post_grad_graph", "after_post_grad_graph"):  # the second up to torch 2.9
        graph = read_graph(payload)
        yield LoweringStarted(unit=reader.unit(head), backward=backward, nodes=graph.nodes, operators=graph.operators)
    elif found := _CACHES.fullmatch(name):
        cache = "fx" if found[1] == "fx_graph" else "autograd"
        reason = str((_json(payload) or {}).get("cache_bypass_reason") or "")
        yield CacheLookup(unit=reader.unit(head), cache=cache, state=found[2], reason=reason, backward=backward)
    elif name == "dynamo_graph_break_reason" and (found := _BREAK.search(payload)):
        yield _break(reader.unit(head), found, payload)


def _break(unit: int, found: re.Match[str], payload: str) -> BreakReported:
    reason = found[3].strip()
    # A message may contain two breaks; the last one is what torch reports.
    lines_above = reason.rpartition(SECOND_BREAK)[2].partition("\n  Explanation:")[0].strip().splitlines()
    kind = lines_above[-1].strip() if lines_above else ""
    user_traceback = payload[found.end() :].partition("\nTraceback (most recent call last)")[0]
    frames = [(f, n, name) for f, n, name in _FRAME.findall(user_traceback) if "/torch/" not in f]
    location = f"{found[1]}:{found[2]}"
    return BreakReported(
        unit=unit,
        kind=kind,
        message=reason,
        frames=(*(f"{file}:{line}" for file, line, _ in frames if f"{file}:{line}" != location), location),
        function=frames[-1][2] if frames else "",
        frame_skipped=kind == LOOP_BREAK,
    )
