"""Real traces of other projects, which are not in this repository, and small ones made here."""

import gzip
import json
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, clean_environ

TRUTH: dict[str, Any] = json.loads((Path(__file__).parent / "truth.json").read_text())
Event = dict[str, Any]


def real_folder() -> Path | None:
    """`$SAMPLE_TRACES`, or `shared/data/traces` in or next to the checkout."""
    named = os.environ.get("SAMPLE_TRACES")
    folders = [Path(named)] if named else [folder / "shared/data/traces" for folder in (ROOT.parent, ROOT)]
    return next((folder for folder in folders if folder.is_dir()), None)


def real(name: str) -> Path:
    """A real trace; skips the test when it is not available."""
    folder = real_folder()
    found = sorted(folder.glob(f"*/{name}")) if folder else []
    if not found:
        pytest.skip(f"{name} is not available: set SAMPLE_TRACES to the folder of real traces")
    return found[0]


def kernel(ts: str, dur: str, correlation: int, **more: Any) -> Event:
    """A kernel; times are text, so that they are written exactly as given."""
    args = {"device": 0, "stream": 7, "correlation": correlation, "External id": correlation, **more.pop("args", {})}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "attn_fwd",
        "pid": 0,
        "tid": 7,
        "ts": ts,
        "dur": dur,
        **more,
        "args": args,
    }


def call(ts: str, dur: str, correlation: int, name: str = "hipLaunchKernel") -> Event:
    """A runtime call."""
    args = {"correlation": correlation, "External id": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def host(cat: str, name: str, ts: str, dur: str, external: int = 1) -> Event:
    """An operator, an annotation or a Python function."""
    args = {"External id": external}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def copy(ts: str, dur: str, correlation: int, size: Any, name: str = "Memcpy HtoD (Pinned -> Device)") -> Event:
    """A copy to or from the device."""
    event = kernel(ts, dur, correlation, args={"bytes": size})
    return {**event, "cat": "gpu_memcpy", "name": name}


def _numbers(text: str) -> str:
    """Write times, given as text, as numbers."""
    import re

    return re.sub(r'"(ts|dur)": "(-?[\d.eE+]+)"', r'"\1": \2', text)


def kineto_text(events: list[Event], *, one_key_a_line: bool = False) -> str:
    """The layout of Kineto: several keys per line before torch 2.13, one key per line since."""
    parts = []
    for event in events:
        keys = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in event.items() if k != "args"]
        end = ", " if not one_key_a_line else ",\n    "
        args = f',\n    "args": {{\n      {json.dumps(event["args"])[1:-1]}\n    }}' if "args" in event else ""
        parts.append("  {\n    " + end.join(keys) + args + "\n  }")
    head = '\n {\n    "schemaVersion": 1,\n    "deviceProperties": [{"id": 0, "name": "A chip"}],\n'
    return _numbers(head + '    "traceEvents": [\n' + ",\n".join(parts) + '\n  ],"traceName": "t.json" }')


def dumped(**how: Any) -> Callable[[list[Event]], str]:
    """The layout of a program that reads a trace and writes it again."""

    def write(events: list[Event]) -> str:
        return _numbers(json.dumps({"deviceProperties": [{"id": 0, "name": "A chip"}], "traceEvents": events}, **how))

    return write


LAYOUTS: dict[str, Callable[[list[Event]], str]] = {
    "kineto": kineto_text,
    "kineto of torch 2.13": lambda events: kineto_text(events, one_key_a_line=True),
    "compact": dumped(),
    "no spaces": lambda events: dumped(separators=(",", ": "))(events).replace(", ", ","),
    "indent 2": dumped(indent=2),
    "indent 4": dumped(indent=4),
    "sorted keys": dumped(sort_keys=True),
    "bare list": lambda events: _numbers(json.dumps(events)),
    "events first": lambda events: _numbers(
        json.dumps({"traceEvents": events, "deviceProperties": [{"id": 0, "name": "A chip"}, {"id": 1}]}, indent=2)
    ),
}


def count(text: str | bytes) -> dict[str, dict[str, int]]:
    """The metrics computed with the standard library only: the whole file at once, with decimal numbers."""
    data = json.loads(text, parse_float=Decimal)
    events = data["traceEvents"] if isinstance(data, dict) else data
    launches = [e for e in events if "GraphLaunch" in e.get("name", "") and e.get("cat", "").startswith("cuda")]
    ids = {e["args"]["correlation"] for e in launches}
    work: dict[str, list[tuple[int, int, Event]]] = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            start, length = (int(Decimal(event[key]) * 1000) for key in ("ts", "dur"))
            work.setdefault(str(event["args"]["device"]), []).append((start, start + length, event))
    return {device: _metrics(events, ids, len(launches)) for device, events in work.items()}


def _metrics(work: list[tuple[int, int, Event]], graphs: set[int], launches: int) -> dict[str, int]:
    work.sort(key=lambda event: event[:2])
    busy, reached = 0, work[0][0]
    for start, end, _ in work:
        busy += max(0, end - max(start, reached))
        reached = max(reached, end)
    kernels = [(end - start, e["args"].get("correlation") in graphs) for start, end, e in work if e["cat"] == "kernel"]
    copies = [int(e["args"].get("bytes", 0)) for _, _, e in work if e["cat"] == "gpu_memcpy"]
    return {
        "kernel_count": len(kernels),
        "kernel_time_ns": sum(time for time, _ in kernels),
        "span_ns": reached - work[0][0],
        "busy_ns": busy,
        "idle_ns": reached - work[0][0] - busy,
        "copy_count": len(copies),
        "copy_bytes": sum(copies),
        "graph_launches": launches,
        "graph_kernel_count": sum(replayed for _, replayed in kernels),
        "graph_kernel_time_ns": sum(time for time, replayed in kernels if replayed),
    }


def packed(text: str | bytes) -> bytes:
    """Gzip."""
    return gzip.compress(text.encode() if isinstance(text, str) else text)


def environ_without(folder: Path, package: str) -> dict[str, str]:
    """An environment in which importing a package fails, whether it is installed or not."""
    (folder / "hidden").mkdir()
    (folder / f"hidden/{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})")
    return clean_environ(PYTHONPATH=f"{folder / 'hidden'}{os.pathsep}{ROOT / 'src'}")
