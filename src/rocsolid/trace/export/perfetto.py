"""Writes a trace for Perfetto and chrome://tracing, with gaps and findings added to it."""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

from rocsolid.model.finding import Finding
from rocsolid.model.trace import TraceFile
from rocsolid.trace.columns import Column, TraceColumns, thread_name

_HOST_PID, _NOTES_PID = 1_000_000, 2_000_000  # process ids that are not device tids
_EXTRA_TID: Final = 100_000_000  # thread ids that are not stream tids
_EXACT_NS: Final = 2**43 * 1000  # up to here, microseconds as a double are exact to the nanosecond


def write_perfetto(file: Path, columns: TraceColumns, trace: TraceFile, findings: tuple[Finding, ...]) -> None:
    """Write Chrome's JSON trace format with gzip, event by event, so that a large trace needs little memory."""
    with gzip.open(file, "wt", compresslevel=5, encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        for number, event in enumerate(_events(columns, trace, findings)):
            out.write(("" if number == 0 else ",\n") + json.dumps(event, separators=(",", ":")))
        out.write("\n]}\n")


def _events(columns: TraceColumns, trace: TraceFile, findings: tuple[Finding, ...]) -> Iterator[dict[str, Any]]:
    device, origin = columns.device, _origin(columns)
    for d in trace.devices:
        yield _named(int(d.device), f"device {d.device} {d.model}".strip())
    yield _named(_HOST_PID, "host")
    yield _named(_NOTES_PID, "rocsolid: gaps and findings")
    yield from _lanes(columns, device.device, device.stream, [device], origin, "stream {}".format)
    host = [columns.annotations, columns.ops, columns.calls]
    thread = np.concatenate([table.thread for table in host])
    process = np.full(len(thread), _HOST_PID, dtype=np.int64)
    yield from _lanes(columns, process, thread, host, origin, lambda number: thread_name(columns, number))
    for d in trace.devices:
        yield _named(_NOTES_PID, f"idle time of device {d.device}", thread=int(d.device))
        first = int(device.start[device.device == int(d.device)].min()) - origin
        for gap in d.gaps:
            start = first + gap.start_ns
            about = {
                "next": gap.after,
                "launched by": gap.launch_call,
                "operator": gap.operator,
                "host": gap.host_activity,
            }
            name = f"idle: {gap.cause.value}"
            yield _event(name, start, start + gap.length_ns, pid=_NOTES_PID, tid=int(d.device), args=about)
    first = int(device.start.min()) - origin if len(device) else 0
    for finding in findings:
        about = {"why": finding.why, "fix": finding.fix}
        name = f"{finding.code} {finding.message}"
        yield {"ph": "i", "s": "g", "name": name, "ts": _us(first), "pid": _NOTES_PID, "tid": 0, "args": about}


def _origin(columns: TraceColumns) -> int:
    """The origin of all times: 0, unless the times are too large for a double to hold nanoseconds."""
    tables = [t for t in (columns.device, columns.annotations, columns.ops, columns.calls) if len(t)]
    if max((int(t.end.max()) for t in tables), default=0) < _EXACT_NS:
        return 0
    return min(int(t.start.min()) for t in tables)


def _lanes(
    columns: TraceColumns, pid: Column, tid: Column, tables: Sequence[Any], origin: int, label: Callable[[int], str]
) -> Iterator[dict[str, Any]]:
    """Events by thread.

    The format requires that the events of a thread are nested, so an event that overlaps the end of another goes to
    an extra lane.
    """
    extra_tids = count(_EXTRA_TID)
    start, end, name = (np.concatenate([getattr(t, field) for t in tables]) for field in ("start", "end", "name"))
    order = np.lexsort((-end, start, tid, pid))
    for process, thread in dict.fromkeys(zip(pid[order].tolist(), tid[order].tolist(), strict=True)):
        mine = order[(pid[order] == process) & (tid[order] == thread)]
        lanes: list[list[int]] = []
        tids: list[int] = []
        for begin, until, name_id in zip(start[mine].tolist(), end[mine].tolist(), name[mine].tolist(), strict=True):
            lane = _first_free_lane(lanes, begin, until)
            if lane == len(tids):
                tids.append(next(extra_tids) if lane else thread)
                yield _named(process, label(thread) + (" (overlapping)" if lane else ""), thread=tids[lane])
            yield _event(columns.names[name_id], begin - origin, until - origin, pid=process, tid=tids[lane])


def _first_free_lane(lanes: list[list[int]], begin: int, until: int) -> int:
    """The first lane in which an event from `begin` to `until` is nested; a lane is the ends of its open events."""
    for number, lane in enumerate(lanes):
        while lane and lane[-1] <= begin:
            lane.pop()
        if not lane or until <= lane[-1]:
            lane.append(until)
            return number
    lanes.append([until])
    return len(lanes) - 1


def _named(process: int, name: str, thread: int | None = None) -> dict[str, Any]:
    kind = "process_name" if thread is None else "thread_name"
    return {"ph": "M", "name": kind, "pid": process, "tid": thread or 0, "args": {"name": name}}


def _event(name: str, start: int, end: int, **where: Any) -> dict[str, Any]:  # noqa: ANN401 - tids and arguments
    return {"ph": "X", "name": name, "ts": _us(start), "dur": _us(end - start), **where}


def _us(ns: int) -> float:
    """Microseconds with decimals, the unit of the format."""
    return ns / 1000
