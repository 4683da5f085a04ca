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

# The device id is used as the process id of device events, and the stream as their thread id. The ids below are larger, so they cannot collide.
_HOST_PID, _NOTES_PID = 1_000_000, 2_000_000
_FIRST_EXTRA_TID: Final = 100_000_000
_MAX_EXACT_NS: Final = 2**43 * 1000  # up to here, microseconds as a double are exact to the nanosecond


def write_perfetto(file: Path, columns: TraceColumns, trace: TraceFile, findings: tuple[Finding, ...]) -> None:
    """Write Chrome's JSON trace format with gzip, event by event, so that a large trace needs little memory."""
    with gzip.open(file, "wt", compresslevel=5, encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        for index, event in enumerate(_events(columns, trace, findings)):
            out.write(("" if index == 0 else ",\n") + json.dumps(event, separators=(",", ":")))
        out.write("\n]}\n")


def _events(columns: TraceColumns, trace: TraceFile, findings: tuple[Finding, ...]) -> Iterator[dict[str, Any]]:
    device, origin = columns.device, _origin(columns)
    for d in trace.devices:
        yield _name_event(int(d.device), f"device {d.device} {d.model}".strip())
    yield _name_event(_HOST_PID, "host")
    yield _name_event(_NOTES_PID, "rocsolid: gaps and findings")
    yield from _lanes(columns, device.device, device.stream, [device], origin, "stream {}".format)
    host = [columns.annotations, columns.ops, columns.calls]
    thread = np.concatenate([table.thread for table in host])
    process = np.full(len(thread), _HOST_PID, dtype=np.int64)
    yield from _lanes(columns, process, thread, host, origin, lambda thread_id: thread_name(columns, thread_id))
    for d in trace.devices:
        yield _name_event(_NOTES_PID, f"idle time of device {d.device}", thread=int(d.device))
        first = int(device.start[device.device == int(d.device)].min()) - origin
        for gap in d.gaps:
            start = first + gap.start_ns
            details = {
                "next": gap.next_work,
                "launched by": gap.launch_call,
                "operator": gap.operator,
                "host": gap.host_activity,
            }
            name = f"idle: {gap.cause.value}"
            yield _event(name, start, start + gap.duration_ns, pid=_NOTES_PID, tid=int(d.device), args=details)
    first = int(device.start.min()) - origin if len(device) else 0
    for finding in findings:
        details = {"why": finding.why, "fix": finding.fix}
        name = f"{finding.code} {finding.message}"
        yield {"ph": "i", "s": "g", "name": name, "ts": _us(first), "pid": _NOTES_PID, "tid": 0, "args": details}


def _origin(columns: TraceColumns) -> int:
    """Return the origin of all times: 0, or the first start if a double cannot hold the times to the nanosecond."""
    tables = [table for table in (columns.device, columns.annotations, columns.ops, columns.calls) if len(table)]
    if max((int(table.end.max()) for table in tables), default=0) < _MAX_EXACT_NS:
        return 0
    return min(int(table.start.min()) for table in tables)


def _lanes(
    columns: TraceColumns, pid: Column, tid: Column, tables: Sequence[Any], origin: int, label: Callable[[int], str]
) -> Iterator[dict[str, Any]]:
    """Yield the events of each thread and the names of the threads.

    The format requires that the events of a thread are nested. An event that starts before another one ends, and ends
    after it, gets an extra thread.
    """
    extra_tids = count(_FIRST_EXTRA_TID)
    start, end, name = (
        np.concatenate([getattr(table, field) for table in tables]) for field in ("start", "end", "name")
    )
    order = np.lexsort((-end, start, tid, pid))
    for process, thread in dict.fromkeys(zip(pid[order].tolist(), tid[order].tolist(), strict=True)):
        rows = order[(pid[order] == process) & (tid[order] == thread)]
        lanes: list[list[int]] = []
        tids: list[int] = []
        for begin, until, name_id in zip(start[rows].tolist(), end[rows].tolist(), name[rows].tolist(), strict=True):
            lane = _first_free_lane(lanes, begin, until)
            if lane == len(tids):
                tids.append(next(extra_tids) if lane else thread)
                yield _name_event(process, label(thread) + (" (overlapping)" if lane else ""), thread=tids[lane])
            yield _event(columns.names[name_id], begin - origin, until - origin, pid=process, tid=tids[lane])


def _first_free_lane(lanes: list[list[int]], begin: int, until: int) -> int:
    """Return the first lane in which an event from `begin` to `until` is nested.

    A lane is a list with the ends of the events that are open in it.
    """
    for index, lane in enumerate(lanes):
        while lane and lane[-1] <= begin:
            lane.pop()
        if not lane or until <= lane[-1]:
            lane.append(until)
            return index
    lanes.append([until])
    return len(lanes) - 1


def _name_event(process: int, name: str, thread: int | None = None) -> dict[str, Any]:
    kind = "process_name" if thread is None else "thread_name"
    return {"ph": "M", "name": kind, "pid": process, "tid": thread or 0, "args": {"name": name}}


def _event(name: str, start: int, end: int, **where: Any) -> dict[str, Any]:  # noqa: ANN401 - tids and arguments
    return {"ph": "X", "name": name, "ts": _us(start), "dur": _us(end - start), **where}


def _us(ns: int) -> float:
    """Convert nanoseconds to microseconds with decimals, the unit of the format."""
    return ns / 1000
