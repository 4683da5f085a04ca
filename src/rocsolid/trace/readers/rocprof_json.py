"""Reads the JSON files of rocprofv3. A damaged file is read as far as possible.

A file contains the kernel dispatches, copies, API calls and hardware counters of one or more processes. The classes
have the structure and the field names of the file; fields that we do not need are left out.
"""

import re
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from rocsolid.trace.columns import EventKind, TraceColumns
from rocsolid.trace.readers.bytestream import ByteStream
from rocsolid.trace.readers.json_events import recover_events
from rocsolid.trace.readers.rocprof_columns import RocprofColumnBuilder, launch_config_text

TOOL_KEY: Final = b'"rocprofiler-sdk-tool"'
_AGENT_TYPE_GPU: Final = 2  # rocprofv3's number for a GPU
# The lists of records that are recovered from a damaged file.
_LIST_NAMES: Final = (
    "agents",
    "kernel_symbols",
    "kernel_dispatch",
    "memory_copy",
    "hip_api",
    "marker_api",
    "counters",
    "counter_collection",
)


class Handle(Struct):
    """An id. The file writes it as an object: `{"handle": 4}`."""

    handle: int = -1


class Correlation(Struct):
    """An id that is the same for an API call and for the GPU work that it launched."""

    internal: int = -1


class Size3D(Struct):
    """A grid or workgroup size."""

    x: int = 0
    y: int = 0
    z: int = 0


class Dispatch(Struct):
    """Which kernel was launched, on which device and queue, and with which sizes."""

    agent_id: Handle = msgspec.field(default_factory=Handle)
    queue_id: Handle = msgspec.field(default_factory=Handle)
    kernel_id: int = -1
    dispatch_id: int = -1
    private_segment_size: int = 0
    group_segment_size: int = 0
    workgroup_size: Size3D = msgspec.field(default_factory=Size3D)
    grid_size: Size3D = msgspec.field(default_factory=Size3D)


class Record(Struct):
    """A kernel dispatch, a copy or an API call, with its start and end in nanoseconds."""

    start_timestamp: int
    end_timestamp: int
    kind: int = -1
    operation: int = -1
    thread_id: int = -1
    correlation_id: Correlation = msgspec.field(default_factory=Correlation)
    dispatch_info: Dispatch | None = None
    stream_id: Handle | None = None
    bytes: int = -1
    src_agent_id: Handle | None = None
    dst_agent_id: Handle | None = None


class Agent(Struct):
    """A CPU or a GPU of the machine."""

    id: Handle
    type: int = 0
    node_id: int = -1
    product_name: str = ""
    name: str = ""
    cu_count: int = 0
    max_waves_per_cu: int = 0


class CounterName(Struct):
    """The name of a counter. The same counter has a different id on each agent."""

    id: Handle
    name: str = ""


class CounterValue(Struct):
    """The value of a counter in one dispatch.

    Some counters have several values for one dispatch, such as one for each L2 channel.
    """

    counter_id: Handle
    value: float


class CountedDispatch(Struct):
    """The dispatch that the counters belong to. Releases before ROCm 7 do not write its times."""

    dispatch_info: Dispatch = msgspec.field(default_factory=Dispatch)
    start_timestamp: int = -1
    end_timestamp: int = -1


class DispatchCounters(Struct):
    """One dispatch and the values of its counters."""

    dispatch_data: CountedDispatch
    records: list[CounterValue] = []


class Callbacks(Struct):
    """The lists that are in `callback_records` of the file."""

    counter_collection: list[DispatchCounters] = []


class KernelSymbol(Struct):
    """The name of a kernel and the registers that it uses."""

    kernel_id: int
    formatted_kernel_name: str = ""
    kernel_name: str = ""
    arch_vgpr_count: int = 0
    sgpr_count: int = 0


class Buffers(Struct):
    """The lists that are in `buffer_records` of the file."""

    kernel_dispatch: list[Record] = []
    memory_copy: list[Record] = []
    hip_api: list[Record] = []
    marker_api: list[Record] = []


class Operations(Struct):
    """The operation names of one kind of record. `Record.operation` is an index into `operations`."""

    kind: str = ""
    operations: list[str] = []


class Strings(Struct):
    """The operation names of all kinds of records. `Record.kind` is an index into `buffer_records`."""

    buffer_records: list[Operations] = []


class Process(Struct):
    """Everything that the file contains about one process."""

    agents: list[Agent] = []
    kernel_symbols: list[KernelSymbol] = []
    strings: Strings = msgspec.field(default_factory=Strings)
    buffer_records: Buffers = msgspec.field(default_factory=Buffers)
    counters: list[CounterName] = []
    callback_records: Callbacks = msgspec.field(default_factory=Callbacks)


class RocprofFile(Struct):
    """The whole file."""

    processes: list[Process] = msgspec.field(name="rocprofiler-sdk-tool", default_factory=list)


# The type of the items in each list. The lists that are not named here contain a `Record`.
_ITEM_TYPES: Final[dict[str, Any]] = {
    "agents": Agent,
    "kernel_symbols": KernelSymbol,
    "counters": CounterName,
    "counter_collection": DispatchCounters,
}


def read_rocprof_json(file: Path) -> TraceColumns:
    """Read the records of all processes in a file."""
    stream = ByteStream(file)
    text = b"".join(stream)
    builder = RocprofColumnBuilder("rocprofv3")
    try:
        processes = msgspec.json.decode(text, type=RocprofFile).processes
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        processes = [_recover_lists(text, builder)]
        builder.damage.append("the JSON is broken or truncated; the complete records in it were read")
    builder.damage += [stream.damage] if stream.damage else []
    for process in processes:
        for agent in process.agents:
            builder.add_agent(
                agent.node_id,
                agent.product_name or agent.name,
                gpu=agent.type == _AGENT_TYPE_GPU,
                compute_units=agent.cu_count,
                waves=agent.max_waves_per_cu,
            )
    for process_index, process in enumerate(processes):
        _add_events(process, builder)
        _add_counters(process, process_index, builder)
    return builder.columns()


def _add_events(process: Process, builder: RocprofColumnBuilder) -> None:
    node_ids = {agent.id.handle: agent.node_id for agent in process.agents}
    gpus = {agent.id.handle for agent in process.agents if agent.type == _AGENT_TYPE_GPU}
    symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
    for record in process.buffer_records.kernel_dispatch:
        _add_kernel(record, node_ids, symbols, builder)
    for record in process.buffer_records.memory_copy:
        agents = [agent.handle for agent in (record.dst_agent_id, record.src_agent_id) if agent]
        device = next((agent for agent in agents if agent in gpus), agents[0] if agents else -1)
        builder.add_device_event(
            EventKind.COPY,
            _operation_name(process, record) or "MEMORY_COPY",
            record.start_timestamp,
            record.end_timestamp,
            device=node_ids.get(device, device),
            stream=record.stream_id.handle if record.stream_id else -1,
            correlation=record.correlation_id.internal,
            bytes=record.bytes,
        )
    for table, records in (
        ("calls", process.buffer_records.hip_api),
        ("annotations", process.buffer_records.marker_api),
    ):
        for record in records:
            builder.add_host_event(
                table,
                _operation_name(process, record) or f"operation {record.operation}",
                record.start_timestamp,
                record.end_timestamp,
                thread=str(record.thread_id),
                correlation=record.correlation_id.internal,
            )


def _add_kernel(
    record: Record, node_ids: dict[int, int], symbols: dict[int, KernelSymbol], builder: RocprofColumnBuilder
) -> None:
    info = record.dispatch_info or Dispatch()
    symbol = symbols.get(info.kernel_id, KernelSymbol(kernel_id=-1))
    builder.add_device_event(
        EventKind.KERNEL,
        _kernel_name(symbols, info.kernel_id),
        record.start_timestamp,
        record.end_timestamp,
        device=node_ids.get(info.agent_id.handle, info.agent_id.handle),
        stream=record.stream_id.handle if record.stream_id else info.queue_id.handle,
        correlation=record.correlation_id.internal,
        launch_config=launch_config_text(
            (info.grid_size.x, info.grid_size.y, info.grid_size.z),
            (info.workgroup_size.x, info.workgroup_size.y, info.workgroup_size.z),
            vgprs=symbol.arch_vgpr_count,
            sgprs=symbol.sgpr_count,
            lds_bytes=info.group_segment_size,
            scratch_bytes=info.private_segment_size,
        ),
    )


def _add_counters(process: Process, process_index: int, builder: RocprofColumnBuilder) -> None:
    names = {counter.id.handle: counter.name for counter in process.counters}
    symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
    for counts in process.callback_records.counter_collection:
        data, info = counts.dispatch_data, counts.dispatch_data.dispatch_info
        duration_ns = data.end_timestamp - data.start_timestamp
        for record in counts.records:
            builder.events += 1
            builder.add_counter(
                _kernel_name(symbols, info.kernel_id),
                names.get(record.counter_id.handle, f"counter {record.counter_id.handle}"),
                record.value,
                dispatch=(process_index, info.dispatch_id) if info.dispatch_id >= 0 else None,
                duration_ns=duration_ns if data.start_timestamp >= 0 else -1,
            )


def _kernel_name(symbols: dict[int, KernelSymbol], kernel_id: int) -> str:
    symbol = symbols.get(kernel_id, KernelSymbol(kernel_id=-1))
    return symbol.formatted_kernel_name or symbol.kernel_name or f"kernel {kernel_id}"


def _operation_name(process: Process, record: Record) -> str:
    kinds = process.strings.buffer_records
    names = kinds[record.kind].operations if 0 <= record.kind < len(kinds) else []
    return names[record.operation] if 0 <= record.operation < len(names) else ""


def _recover_lists(text: bytes, builder: RocprofColumnBuilder) -> Process:
    """Read each item of each list in a damaged file on its own. Broken items are counted as skipped."""
    lists: dict[str, list[Any]] = {}
    for name in _LIST_NAMES:
        lists[name] = []
        list_start = re.search(rb'"%s"\s*:\s*\[' % name.encode(), text)
        if list_start is None:
            continue
        recovered = recover_events(text[list_start.end() :], last=True)
        builder.skipped += recovered.broken
        builder.events += recovered.broken
        for item in recovered.events:
            try:
                lists[name].append(msgspec.json.decode(item, type=_ITEM_TYPES.get(name, Record)))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                builder.skipped += 1
                builder.events += 1
    return Process(
        agents=lists.pop("agents"),
        kernel_symbols=lists.pop("kernel_symbols"),
        counters=lists.pop("counters"),
        callback_records=Callbacks(counter_collection=lists.pop("counter_collection")),
        buffer_records=Buffers(**lists),
    )
