"""Reads rocprofv3 JSON: dispatches, copies, API calls and counters of one or more processes, also damaged files."""

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
_LISTS: Final = (
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
    """An id in an object of its own."""

    handle: int = -1


class Correlation(Struct):
    """The id that a call shares with the work it launched."""

    internal: int = -1


class Sizes(Struct):
    """Sizes in three dimensions."""

    x: int = 0
    y: int = 0
    z: int = 0


class Dispatch(Struct):
    """The kernel, device, queue and sizes of a dispatch."""

    agent_id: Handle = msgspec.field(default_factory=Handle)
    queue_id: Handle = msgspec.field(default_factory=Handle)
    kernel_id: int = -1
    dispatch_id: int = -1
    private_segment_size: int = 0
    group_segment_size: int = 0
    workgroup_size: Sizes = msgspec.field(default_factory=Sizes)
    grid_size: Sizes = msgspec.field(default_factory=Sizes)


class Record(Struct):
    """A dispatch, a copy or a call."""

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
    """A CPU or a GPU; type 2 is a GPU."""

    id: Handle
    type: int = 0
    node_id: int = -1
    product_name: str = ""
    name: str = ""
    cu_count: int = 0
    max_waves_per_cu: int = 0


class CounterName(Struct):
    """The name of a counter; every agent has ids of its own."""

    id: Handle
    name: str = ""


class CounterValue(Struct):
    """A counter in one dispatch, or a part of it, such as one L2 channel."""

    counter_id: Handle
    value: float


class CountedDispatch(Struct):
    """The dispatch that was counted; releases before ROCm 7 write no times."""

    dispatch_info: Dispatch = msgspec.field(default_factory=Dispatch)
    start_timestamp: int = -1
    end_timestamp: int = -1


class DispatchCounters(Struct):
    """All counters of one dispatch."""

    dispatch_data: CountedDispatch
    records: list[CounterValue] = []


class Callbacks(Struct):
    """Records that the tool writes in callbacks."""

    counter_collection: list[DispatchCounters] = []


class Symbol(Struct):
    """The name and the registers of a kernel."""

    kernel_id: int
    formatted_kernel_name: str = ""
    kernel_name: str = ""
    arch_vgpr_count: int = 0
    sgpr_count: int = 0


class Buffers(Struct):
    """Records that the tool collects in buffers."""

    kernel_dispatch: list[Record] = []
    memory_copy: list[Record] = []
    hip_api: list[Record] = []
    marker_api: list[Record] = []


class Operations(Struct):
    """The operation names of one kind of record."""

    kind: str = ""
    operations: list[str] = []


class Strings(Struct):
    """Operation names, indexed by record kind."""

    buffer_records: list[Operations] = []


class Process(Struct):
    """One process."""

    agents: list[Agent] = []
    kernel_symbols: list[Symbol] = []
    strings: Strings = msgspec.field(default_factory=Strings)
    buffer_records: Buffers = msgspec.field(default_factory=Buffers)
    counters: list[CounterName] = []
    callback_records: Callbacks = msgspec.field(default_factory=Callbacks)


class Tool(Struct):
    """The whole file."""

    tool: list[Process] = msgspec.field(name="rocprofiler-sdk-tool", default_factory=list)


_ITEM: Final[dict[str, Any]] = {
    "agents": Agent,
    "kernel_symbols": Symbol,
    "counters": CounterName,
    "counter_collection": DispatchCounters,
}


def read_rocprof_json(file: Path) -> TraceColumns:
    """Read all processes of a file."""
    stream = ByteStream(file)
    text = b"".join(stream)
    builder = RocprofColumnBuilder("rocprofv3")
    try:
        processes = msgspec.json.decode(text, type=Tool).tool
    except (msgspec.MsgspecError, UnicodeDecodeError):
        processes = [_recover_lists(text, builder)]
        builder.damage.append("the JSON is broken or truncated; the complete records in it were read")
    builder.damage += [stream.damage] if stream.damage else []
    for process in processes:
        for agent in process.agents:
            builder.add_agent(
                agent.node_id,
                agent.product_name or agent.name,
                gpu=agent.type == 2,  # noqa: PLR2004 - rocprofv3's number for a GPU
                compute_units=agent.cu_count,
                waves=agent.max_waves_per_cu,
            )
    for number, process in enumerate(processes):
        _add_events(process, builder)
        _add_counters(process, number, builder)
    return builder.columns()


def _add_events(process: Process, builder: RocprofColumnBuilder) -> None:
    nodes = {agent.id.handle: agent.node_id for agent in process.agents}
    gpus = {agent.id.handle for agent in process.agents if agent.type == 2}  # noqa: PLR2004 - rocprofv3's number for a GPU
    symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
    for record in process.buffer_records.kernel_dispatch:
        _add_kernel(record, nodes, symbols, builder)
    for record in process.buffer_records.memory_copy:
        agents = [agent.handle for agent in (record.dst_agent_id, record.src_agent_id) if agent]
        device = next((agent for agent in agents if agent in gpus), agents[0] if agents else -1)
        builder.add_device_event(
            EventKind.COPY,
            _operation(process, record) or "MEMORY_COPY",
            record.start_timestamp,
            record.end_timestamp,
            device=nodes.get(device, device),
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
                _operation(process, record) or f"operation {record.operation}",
                record.start_timestamp,
                record.end_timestamp,
                thread=str(record.thread_id),
                correlation=record.correlation_id.internal,
            )


def _add_kernel(
    record: Record, nodes: dict[int, int], symbols: dict[int, Symbol], builder: RocprofColumnBuilder
) -> None:
    info = record.dispatch_info or Dispatch()
    symbol = symbols.get(info.kernel_id, Symbol(kernel_id=-1))
    builder.add_device_event(
        EventKind.KERNEL,
        _kernel_name(symbols, info.kernel_id),
        record.start_timestamp,
        record.end_timestamp,
        device=nodes.get(info.agent_id.handle, info.agent_id.handle),
        stream=record.stream_id.handle if record.stream_id else info.queue_id.handle,
        correlation=record.correlation_id.internal,
        launch_config=launch_config_text(
            (info.grid_size.x, info.grid_size.y, info.grid_size.z),
            (info.workgroup_size.x, info.workgroup_size.y, info.workgroup_size.z),
            VGPRs=symbol.arch_vgpr_count,
            SGPRs=symbol.sgpr_count,
            B_LDS=info.group_segment_size,
            B_scratch=info.private_segment_size,
        ),
    )


def _add_counters(process: Process, number: int, builder: RocprofColumnBuilder) -> None:
    names = {counter.id.handle: counter.name for counter in process.counters}
    symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
    for counts in process.callback_records.counter_collection:
        data, info = counts.dispatch_data, counts.dispatch_data.dispatch_info
        length = data.end_timestamp - data.start_timestamp
        for record in counts.records:
            builder.events += 1
            builder.add_counter(
                _kernel_name(symbols, info.kernel_id),
                names.get(record.counter_id.handle, f"counter {record.counter_id.handle}"),
                record.value,
                dispatch=(number, info.dispatch_id) if info.dispatch_id >= 0 else None,
                length=length if data.start_timestamp >= 0 else -1,
            )


def _kernel_name(symbols: dict[int, Symbol], number: int) -> str:
    symbol = symbols.get(number, Symbol(kernel_id=-1))
    return symbol.formatted_kernel_name or symbol.kernel_name or f"kernel {number}"


def _operation(process: Process, record: Record) -> str:
    kinds = process.strings.buffer_records
    names = kinds[record.kind].operations if 0 <= record.kind < len(kinds) else []
    return names[record.operation] if 0 <= record.operation < len(names) else ""


def _recover_lists(text: bytes, builder: RocprofColumnBuilder) -> Process:
    """Read each list and each item of a damaged file separately; a broken item is counted as skipped."""
    lists: dict[str, list[Any]] = {}
    for name in _LISTS:
        lists[name] = []
        opening = re.search(rb'"%s"\s*:\s*\[' % name.encode(), text)
        if opening is None:
            continue
        recovered = recover_events(text[opening.end() :], last=True)
        builder.skipped += recovered.lost
        builder.events += recovered.lost
        for item in recovered.events:
            try:
                lists[name].append(msgspec.json.decode(item, type=_ITEM.get(name, Record)))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                builder.skipped += 1
                builder.events += 1
    return Process(
        agents=lists.pop("agents"),
        kernel_symbols=lists.pop("kernel_symbols"),
        counters=lists.pop("counters"),
        callback_records=Callbacks(counter_collection=lists.pop("counter_collection")),
        buffer_records=Buffers(**lists),
    )
