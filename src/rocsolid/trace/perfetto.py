"""A trace that Perfetto and chrome://tracing open: what we read, with gaps and findings drawn into it."""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

from rocsolid.model.finding import Finding
from rocsolid.model.trace import TraceFile
from rocsolid.trace.columns import Column, Columns
from rocsolid.trace.timeline import thread_name

_HOST, _NOTES = 1_000_000, 2_000_000  # process numbers that no device has
_SPARE: Final = 100_000_000  # thread numbers that no stream has
_EXACT: Final = 2**43 * 1000  # up to here a double of microseconds holds a nanosecond


def write_perfetto(file: Path, columns: Columns, answers: TraceFile, findings: tuple[Finding, ...]) -> None:
    """Chrome's JSON, packed; one event a line, so that a large trace needs no memory of its own."""
    with gzip.open(file, "wt", compresslevel=5, encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        for number, event in enumerate(_events(columns, answers, findings)):
            out.write(("" if number == 0 else ",\n") + json.dumps(event, separators=(",", ":")))
        out.write("\n]}\n")


def _events(columns: Columns, answers: TraceFile, findings: tuple[Finding, ...]) -> Iterator[dict[str, Any]]:
    device, base = columns.device, _base(columns)
    for d in answers.devices:
        yield _named(int(d.device), f"device {d.device} {d.model}".strip())
    yield _named(_HOST, "host")
    yield _named(_NOTES, "rocsolid: gaps and findings")
    yield from _lanes(columns, device.device, device.stream, [device], base, "stream {}".format)
    host = [columns.notes, columns.ops, columns.calls]
    thread = np.concatenate([table.thread for table in host])
    process = np.full(len(thread), _HOST, dtype=np.int64)
    yield from _lanes(columns, process, thread, host, base, lambda number: thread_name(columns, number))
    for d in answers.devices:
        yield _named(_NOTES, f"idle time of device {d.device}", thread=int(d.device))
        first = int(device.start[device.device == int(d.device)].min()) - base
        for gap in d.gaps:
            start = first + gap.start_ns
            about = {"next": gap.after, "launched by": gap.call, "operator": gap.operator, "host was in": gap.host}
            name = f"idle: {gap.cause.value}"
            yield _event(name, start, start + gap.length_ns, pid=_NOTES, tid=int(d.device), args=about)
    begun = int(device.start.min()) - base if len(device) else 0
    for finding in findings:
        about = {"why": finding.why, "fix": finding.fix}
        name = f"{finding.code} {finding.message}"
        yield {"ph": "i", "s": "g", "name": name, "ts": _us(begun), "pid": _NOTES, "tid": 0, "args": about}


def _base(columns: Columns) -> int:
    """What all times are counted from: nothing, unless they are too large to be held to the nanosecond."""
    tables = [t for t in (columns.device, columns.notes, columns.ops, columns.calls) if len(t)]
    if max((int(t.end.max()) for t in tables), default=0) < _EXACT:
        return 0
    return min(int(t.start.min()) for t in tables)


def _lanes(
    columns: Columns, pid: Column, tid: Column, tables: Sequence[Any], base: int, label: Callable[[int], str]
) -> Iterator[dict[str, Any]]:
    """Events by thread, each within the one around it.

    The format wants slices of a thread to be nested, so what crosses the end of another stands on a lane of its own.
    """
    spare = count(_SPARE)
    start, end, name = (np.concatenate([getattr(t, field) for t in tables]) for field in ("start", "end", "name"))
    order = np.lexsort((-end, start, tid, pid))
    for process, thread in dict.fromkeys(zip(pid[order].tolist(), tid[order].tolist(), strict=True)):
        mine = order[(pid[order] == process) & (tid[order] == thread)]
        lanes: list[list[int]] = []
        numbers: list[int] = []
        for begun, until, word in zip(start[mine].tolist(), end[mine].tolist(), name[mine].tolist(), strict=True):
            lane = _fitting(lanes, begun, until)
            if lane == len(numbers):
                numbers.append(next(spare) if lane else thread)
                yield _named(process, label(thread) + (" (overlapping)" if lane else ""), thread=numbers[lane])
            yield _event(columns.names[word], begun - base, until - base, pid=process, tid=numbers[lane])


def _fitting(lanes: list[list[int]], begun: int, until: int) -> int:
    """The first lane on which nothing that is open ends before this does; a lane is the ends of what is open on it."""
    for number, lane in enumerate(lanes):
        while lane and lane[-1] <= begun:
            lane.pop()
        if not lane or until <= lane[-1]:
            lane.append(until)
            return number
    lanes.append([until])
    return len(lanes) - 1


def _named(process: int, name: str, thread: int | None = None) -> dict[str, Any]:
    kind = "process_name" if thread is None else "thread_name"
    return {"ph": "M", "name": kind, "pid": process, "tid": thread or 0, "args": {"name": name}}


def _event(name: str, start: int, end: int, **where: Any) -> dict[str, Any]:  # noqa: ANN401 - numbers and arguments
    return {"ph": "X", "name": name, "ts": _us(start), "dur": _us(end - start), **where}


def _us(ns: int) -> float:
    """Perfetto takes microseconds with decimals."""
    return ns / 1000
