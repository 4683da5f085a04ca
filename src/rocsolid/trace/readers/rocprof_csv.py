"""Reads rocprofv3 CSV files: kernels, copies, API calls and counters. The column names of all releases are known."""

import codecs
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.trace.columns import EventKind, TraceColumns
from rocsolid.trace.readers.bytestream import ByteStream
from rocsolid.trace.readers.rocprof_columns import RocprofColumnBuilder, launch_config_text, parse_integer

Row = dict[str, str]
_LINE_END: Final = re.compile("\r\n|\r|\n")
_MAX_LINE_CHARS: Final = 1 << 24
_BOMB_RATIO: Final = 60  # rows need more memory than their text
_BOMB_MIN_BYTES: Final = 8 << 20
# The files of one run have the same prefix and these endings.
_FILES_OF_A_RUN: Final = (
    "kernel_trace.csv",
    "memory_copy_trace.csv",
    "hip_api_trace.csv",
    "hip_runtime_api_trace.csv",
    "marker_api_trace.csv",
    "counter_collection.csv",
    "agent_info.csv",
)


def is_rocprof_csv(head: bytes) -> bool:
    """Whether the first line names columns of rocprofv3."""
    line = head.split(b"\n", 1)[0].lower()
    return any(name in line for name in (b"start_timestamp", b"counter_name")) and b"," in line


def read_rocprof_csv(file: Path) -> TraceColumns:
    """Read a file and the other files of the same run in its folder."""
    builder = RocprofColumnBuilder("rocprofv3")
    for part in _files_of_run(file):
        _read(part, builder)
    return builder.columns()


def _files_of_run(file: Path) -> list[Path]:
    file_kind = next((name for name in _FILES_OF_A_RUN if file.name.endswith(f"_{name}")), "")
    prefix = file.name.removesuffix(file_kind) if file_kind else ""
    others = [file.with_name(prefix + name) for name in _FILES_OF_A_RUN if file_kind and name != file_kind]
    return [file, *(other for other in others if other.is_file())]


def _read(file: Path, builder: RocprofColumnBuilder) -> None:
    stream = ByteStream(file, bomb_ratio=_BOMB_RATIO, bomb_min_bytes=_BOMB_MIN_BYTES)
    try:
        _add_rows(file, _rows(stream, builder), builder)
    finally:
        builder.damage += [stream.damage] if stream.damage else []


def _add_rows(file: Path, rows: Iterator[Row], builder: RocprofColumnBuilder) -> None:
    first = next(rows, None)
    if first is None:
        return
    if "counter_name" in first:
        add = _add_counter
    elif "function" in first:
        add = _add_call
    elif "direction" in first:
        add = _add_copy
    elif "kernel_name" in first:
        add = _add_kernel
    elif "product_name" in first or "agent_type" in first:
        add = _add_agent
    else:
        msg = f"{file} has no known rocprofv3 columns; its first columns are {', '.join(list(first)[:5])}"
        raise InputError(msg)
    add(first, builder)
    for row in rows:
        add(row, builder)


def _rows(stream: ByteStream, builder: RocprofColumnBuilder) -> Iterator[Row]:
    """Yield rows as dictionaries. Column names are in lower case, because their case differs between releases.

    A row with too few or too many columns is counted as skipped.
    """
    lines = _lines(stream, builder)
    names = [name.strip().lower() for name in next(lines, [])]
    for line in lines:
        if not line:
            continue
        if len(line) != len(names):
            builder.skipped += 1
            builder.events += 1
            continue
        yield dict(zip(names, line, strict=True))


def _text_lines(stream: ByteStream) -> Iterator[str]:
    """Yield the lines of a file that may not fit into memory."""
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    for chunk in stream:
        text = rest + decoder.decode(chunk).replace("\0", "")
        lines = text.replace("\r\n", "\n").split("\n") if text.endswith("\r") else _LINE_END.split(text)
        rest = lines.pop()
        yield from (f"{line}\n" for line in lines)
        if len(rest) > _MAX_LINE_CHARS:
            stream.damage = f"a line has more than {_MAX_LINE_CHARS:,} characters; reading stopped"
            return
    yield from (f"{line}\n" for line in _LINE_END.split(rest) if line)


def _lines(stream: ByteStream, builder: RocprofColumnBuilder) -> Iterator[list[str]]:
    reader = csv.reader(_text_lines(stream))
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:  # an unterminated field
            builder.skipped += 1
            builder.events += 1


def _add_kernel(row: Row, builder: RocprofColumnBuilder) -> None:
    builder.add_device_event(
        EventKind.KERNEL,
        row["kernel_name"],
        row.get("start_timestamp"),
        row.get("end_timestamp"),
        device=row.get("agent_id"),
        stream=row.get("stream_id") or row.get("queue_id"),
        correlation=row.get("correlation_id"),
        launch_config=_launch_config(row),
    )


def _launch_config(row: Row) -> str:
    axes = ("x", "y", "z")
    if "grid_size_x" not in row:
        return ""
    return launch_config_text(
        tuple(row.get(f"grid_size_{axis}") for axis in axes),
        tuple(row.get(f"workgroup_size_{axis}") for axis in axes),
        vgprs=row.get("vgpr_count"),
        sgprs=row.get("sgpr_count"),
        lds_bytes=row.get("lds_block_size") or row.get("group_segment_size"),
        scratch_bytes=row.get("scratch_size") or row.get("private_segment_size"),
    )


def _add_copy(row: Row, builder: RocprofColumnBuilder) -> None:
    """Add a copy. Its device is the source or the destination, whichever is not the host. Most releases write no size."""
    direction = row["direction"].upper()
    agents = (row.get("source_agent_id"), row.get("destination_agent_id"))
    device = agents[0] if direction.endswith("TO_HOST") else agents[1]
    builder.add_device_event(
        EventKind.COPY,
        row["direction"],
        row.get("start_timestamp"),
        row.get("end_timestamp"),
        device=device,
        stream=row.get("stream_id"),
        correlation=row.get("correlation_id"),
        bytes=row.get("size") or row.get("bytes"),
    )


def _add_call(row: Row, builder: RocprofColumnBuilder) -> None:
    table = "annotations" if row.get("domain", "").upper().startswith("MARKER") else "calls"
    thread = f"{row.get('process_id', '')}/{row.get('thread_id', '')}"
    builder.add_host_event(
        table,
        row["function"],
        row.get("start_timestamp"),
        row.get("end_timestamp"),
        thread=thread,
        correlation=row.get("correlation_id"),
    )


def _add_counter(row: Row, builder: RocprofColumnBuilder) -> None:
    """Add a counter of one dispatch, and the duration of the dispatch if the release writes it."""
    builder.events += 1
    start, end = parse_integer(row.get("start_timestamp")), parse_integer(row.get("end_timestamp"))
    builder.add_counter(
        row.get("kernel_name", ""),
        row["counter_name"],
        row.get("counter_value"),
        dispatch=_dispatch_key(row),
        duration_ns=end - start if 0 <= start < end else -1,
    )


def _dispatch_key(row: Row) -> object:
    """Return a key that is unique for each dispatch; None when the file has no dispatch ids."""
    if "dispatch_id" not in row:
        return None
    return tuple(row.get(name, "") for name in ("guid", "process_id", "agent_id", "dispatch_id"))


def _add_agent(row: Row, builder: RocprofColumnBuilder) -> None:
    builder.add_agent(
        parse_integer(row.get("node_id")),
        row.get("product_name") or row.get("name", ""),
        gpu=row.get("agent_type", "").upper() == "GPU",
        compute_units=row.get("cu_count"),
        waves=row.get("max_waves_per_cu"),
    )
