"""rocprofv3's CSV: kernels, copies, API calls and counters, whatever the release called its columns."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.trace.bytestream import ByteStream
from rocsolid.trace.columns import Columns, Kind
from rocsolid.trace.row_columns import Assembler, number, shape_of

Row = dict[str, str]
# What one run writes side by side, each under the same number of its process.
_SIBLINGS: Final = (
    "kernel_trace.csv",
    "memory_copy_trace.csv",
    "hip_api_trace.csv",
    "hip_runtime_api_trace.csv",
    "marker_api_trace.csv",
    "counter_collection.csv",
    "agent_info.csv",
)


def is_rocprof_csv(head: bytes) -> bool:
    """Whether the first line holds columns that we know."""
    line = head.split(b"\n", 1)[0].lower()
    return any(name in line for name in (b"start_timestamp", b"counter_name")) and b"," in line


def read_rocprof_csv(file: Path) -> Columns:
    """A file, and what the same run wrote beside it."""
    found = Assembler("rocprofv3")
    for part in _run(file):
        _read(part, found)
    return found.columns()


def _run(file: Path) -> list[Path]:
    own = next((name for name in _SIBLINGS if file.name.endswith(f"_{name}")), "")
    prefix = file.name.removesuffix(own) if own else ""
    beside = [file.with_name(prefix + name) for name in _SIBLINGS if own and name != own]
    return [file, *(other for other in beside if other.is_file())]


def _read(file: Path, found: Assembler) -> None:
    stream = ByteStream(file)
    text = b"".join(stream).decode("utf-8", "replace")
    found.damage += [stream.damage] if stream.damage else []
    rows = _rows(text, found)
    first = next(rows, None)
    if first is None:
        return
    if "counter_name" in first:
        take = _counter
    elif "function" in first:
        take = _call
    elif "direction" in first:
        take = _copy
    elif "kernel_name" in first:
        take = _kernel
    elif "product_name" in first or "agent_type" in first:
        take = _agent
    else:
        msg = f"{file} has none of the columns of rocprofv3 that we know; its first are {', '.join(list(first)[:5])}"
        raise InputError(msg)
    take(first, found)
    for row in rows:
        take(row, found)


def _rows(text: str, found: Assembler) -> Iterator[Row]:
    """Rows by column, whose names differ in case between writers; a row that does not fit them is broken."""
    lines = _lines(text, found)
    names = [name.strip().lower() for name in next(lines, [])]
    for line in lines:
        if not line:
            continue
        if len(line) != len(names):
            found.skipped += 1
            found.events += 1
            continue
        yield dict(zip(names, line, strict=True))


def _lines(text: str, found: Assembler) -> Iterator[list[str]]:
    reader = csv.reader(io.StringIO(text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")))
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:  # a field without an end
            found.skipped += 1
            found.events += 1


def _kernel(row: Row, found: Assembler) -> None:
    found.work(
        Kind.KERNEL,
        row["kernel_name"],
        row.get("start_timestamp"),
        row.get("end_timestamp"),
        device=row.get("agent_id"),
        stream=row.get("stream_id") or row.get("queue_id"),
        correlation=row.get("correlation_id"),
        shape=_shape(row),
    )


def _shape(row: Row) -> str:
    axes = ("x", "y", "z")
    if "grid_size_x" not in row:
        return ""
    return shape_of(
        tuple(row.get(f"grid_size_{axis}") for axis in axes),
        tuple(row.get(f"workgroup_size_{axis}") for axis in axes),
        VGPRs=row.get("vgpr_count"),
        SGPRs=row.get("sgpr_count"),
        B_LDS=row.get("lds_block_size") or row.get("group_segment_size"),
        B_scratch=row.get("scratch_size") or row.get("private_segment_size"),
    )


def _copy(row: Row, found: Assembler) -> None:
    """The CSV tells no sizes; the device is the one that is not the host's."""
    direction = row["direction"].upper()
    ends = (row.get("source_agent_id"), row.get("destination_agent_id"))
    device = ends[0] if direction.endswith("TO_HOST") else ends[1]
    found.work(
        Kind.COPY,
        row["direction"],
        row.get("start_timestamp"),
        row.get("end_timestamp"),
        device=device,
        stream=row.get("stream_id"),
        correlation=row.get("correlation_id"),
        bytes=row.get("size") or row.get("bytes"),
    )


def _call(row: Row, found: Assembler) -> None:
    table = "notes" if row.get("domain", "").upper().startswith("MARKER") else "calls"
    thread = f"{row.get('process_id', '')}/{row.get('thread_id', '')}"
    found.call(
        table,
        row["function"],
        row.get("start_timestamp"),
        row.get("end_timestamp"),
        thread=thread,
        correlation=row.get("correlation_id"),
    )


def _counter(row: Row, found: Assembler) -> None:
    """A counter of one dispatch, and how long that took where the release tells it."""
    found.events += 1
    start, end = number(row.get("start_timestamp")), number(row.get("end_timestamp"))
    found.count(
        row.get("kernel_name", ""),
        row["counter_name"],
        row.get("counter_value"),
        dispatch=_dispatch(row),
        length=end - start if 0 <= start < end else -1,
    )


def _dispatch(row: Row) -> object:
    """What tells a dispatch from the others; nothing where the file numbers none."""
    if "dispatch_id" not in row:
        return None
    return tuple(row.get(name, "") for name in ("guid", "process_id", "agent_id", "dispatch_id"))


def _agent(row: Row, found: Assembler) -> None:
    found.device(
        number(row.get("node_id")),
        row.get("product_name") or row.get("name", ""),
        gpu=row.get("agent_type", "").upper() == "GPU",
        compute_units=row.get("cu_count"),
        waves=row.get("max_waves_per_cu"),
    )
