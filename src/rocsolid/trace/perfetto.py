"""A trace that Perfetto and chrome://tracing open: what we read, with gaps and findings drawn into it."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocsolid.model.finding import Finding
from rocsolid.model.trace import TraceFile
from rocsolid.trace.columns import Columns

_HOST, _NOTES = 1_000_000, 2_000_000  # process numbers that no device has


def write_perfetto(file: Path, columns: Columns, answers: TraceFile, findings: tuple[Finding, ...]) -> None:
    """Chrome's JSON, packed; one event a line, so that a large trace needs no memory of its own."""
    with gzip.open(file, "wt", compresslevel=5, encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        for number, event in enumerate(_events(columns, answers, findings)):
            out.write(("" if number == 0 else ",\n") + json.dumps(event, separators=(",", ":")))
        out.write("\n]}\n")


def _events(columns: Columns, answers: TraceFile, findings: tuple[Finding, ...]) -> Iterator[dict[str, Any]]:
    device = columns.device
    for d in answers.devices:
        yield _named(int(d.device), f"device {d.device} {d.model}".strip())
    yield _named(_HOST, "host")
    yield _named(_NOTES, "rocsolid: gaps and findings")
    for n in range(len(device)):
        where = {"pid": int(device.device[n]), "tid": int(device.stream[n])}
        yield _event(columns.names[device.name[n]], int(device.start[n]), int(device.end[n]), **where)
    for table in (columns.notes, columns.ops, columns.calls):
        for n in range(len(table)):
            where = {"pid": _HOST, "tid": int(table.thread[n])}
            yield _event(columns.names[table.name[n]], int(table.start[n]), int(table.end[n]), **where)
    for d in answers.devices:
        first = int(device.start[device.device == int(d.device)].min())
        for gap in d.gaps:
            start = first + gap.start_ns
            about = {"next": gap.after, "launched by": gap.call, "operator": gap.operator, "host was in": gap.host}
            name = f"idle: {gap.cause.value}"
            yield _event(name, start, start + gap.length_ns, pid=_NOTES, tid=int(d.device), args=about)
    begun = int(device.start.min()) if len(device) else 0
    for finding in findings:
        about = {"why": finding.why, "fix": finding.cure}
        name = f"{finding.code} {finding.seen}"
        yield {"ph": "i", "s": "g", "name": name, "ts": _us(begun), "pid": _NOTES, "tid": 0, "args": about}


def _named(number: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}


def _event(name: str, start: int, end: int, **where: Any) -> dict[str, Any]:  # noqa: ANN401 - numbers and arguments
    return {"ph": "X", "name": name, "ts": _us(start), "dur": _us(end - start), **where}


def _us(ns: int) -> float:
    """Perfetto takes microseconds with decimals; doubles hold a nanosecond up to three months."""
    return ns / 1000
