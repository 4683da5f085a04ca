"""What a trace says: where the device's time went, what it waited for, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rocsolid.model.compile_log import GraphBreak
from rocsolid.model.finding import Finding

TRACE_SCHEMA = "rocsolid/trace/1"
TRACE_DIFFERENCE_SCHEMA = "rocsolid/trace-difference/1"


class Category(Enum):
    """What a kernel is for, judged by its name."""

    GEMM = "gemm"
    ATTENTION = "attention"
    NORM = "normalisation"
    ELEMENTWISE = "elementwise"
    CONVOLUTION = "convolution"
    REDUCTION = "reduction"
    COPY = "copy"
    COLLECTIVE = "collective"
    OTHER = "other"


class Cause(Enum):
    """Why the device had nothing to do."""

    HOST_LATE = "host-late"  # the next launch was made only after the device had run dry
    LAUNCHING = "launch-queue-empty"  # the next launch was under way when the device ran dry
    SYNC = "sync"  # the host waited for the device, and launched only then
    COPY = "host-device-copy"  # the host was busy with a blocking copy
    LOADER = "data-loader"  # the host waited for its data loader
    STREAMS = "stream-dependency"  # work was queued, behind work of another stream
    GRAPH = "between-graph-nodes"  # between two kernels of one replay; may be the profiler's doing
    QUEUED = "queued"  # work was queued in the same stream and did not start
    UNKNOWN = "unknown"  # the launch of the next work lies outside the trace


@dataclass(frozen=True, kw_only=True)
class CategoryTime:
    """Kernels, copies and fills of one category."""

    category: Category
    count: int
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """All runs of one kernel."""

    name: str
    category: Category
    count: int
    total_ns: int
    mean_ns: float
    p50_ns: int
    p99_ns: int
    graph_count: int
    shape: str  # of the launch that took longest in total
    operator: str  # that launched it most often
    position: int = 0  # among all kernels, by their first start
    place: str = ""  # the line of Python, from a second pass


@dataclass(frozen=True, kw_only=True)
class IdleTime:
    """Idle time of one cause."""

    cause: Cause
    gap_count: int
    time_ns: int
    capture_ns: int = 0  # the part of it in which a graph was being captured


@dataclass(frozen=True, kw_only=True)
class Gap:
    """One stretch in which the device did nothing."""

    start_ns: int  # since the device's first event
    length_ns: int
    cause: Cause
    before: str
    after: str
    call: str  # the runtime call that launched what came after
    operator: str
    host: str  # what the host was doing


@dataclass(frozen=True, kw_only=True)
class CopyRow:
    """Copies of one direction and kind of memory."""

    direction: str
    memory: str  # pinned, pageable, device, or empty where the trace does not say
    count: int
    bytes: int
    time_ns: int
    unsized_count: int = 0  # copies whose size the trace does not tell

    @property
    def gb_per_s(self) -> float:
        """The bandwidth achieved while copies ran."""
        return self.bytes / self.time_ns if self.time_ns else 0.0


@dataclass(frozen=True, kw_only=True)
class GraphRow:
    """Launches of what looks like one graph: as many kernels, of the same names."""

    launches: int
    kernels_each: int
    kernel_time_ns: int
    first_kernel: str
    launch_mean_ns: float


@dataclass(frozen=True, kw_only=True)
class CallRow:
    """All calls of one runtime function."""

    name: str
    count: int
    total_ns: int
    p50_ns: int


@dataclass(frozen=True, kw_only=True)
class Launches:
    """How work reached the device."""

    launch_count: int = 0
    call_p50_ns: int = 0  # host time in the launching call
    delay_p50_ns: int = 0  # from the call to the start on the device
    delay_p99_ns: int = 0
    short_kernel_count: int = 0  # shorter on the device than their call on the host
    unlinked_count: int = 0  # device events whose launch lies outside the trace
    sync_count: int = 0
    sync_time_ns: int = 0
    calls: tuple[CallRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OperatorRow:
    """Device time under one operator, by the id that the profiler gives both."""

    name: str
    count: int  # device events
    device_ns: int
    host_ns: int


@dataclass(frozen=True, kw_only=True)
class Region:
    """A compiled region, a step or another annotation, as the host saw it."""

    name: str
    count: int
    total_ns: int
    p50_ns: int
    shortest_ns: int
    longest_ns: int
    function: str = ""  # of a compiled region, where a log of the compiler was read beside the trace
    place: str = ""  # file:line
    why: str = ""  # why it is a region of its own, or was compiled again


@dataclass(frozen=True, kw_only=True)
class CompileJoin:
    """What a log of the compiler (TORCH_TRACE) adds to a trace."""

    source: str
    torch: str
    matched: int  # compiled regions whose function and line it tells
    unmatched: tuple[str, ...] = ()  # regions of the trace that it does not know
    breaks: tuple[GraphBreak, ...] = ()  # of functions that the trace shows
    other_breaks: int = 0  # of functions that it does not show


@dataclass(frozen=True, kw_only=True)
class CollectiveTime:
    """Communication between devices, and how much of it nothing else hid."""

    count: int = 0
    time_ns: int = 0  # union over streams
    exposed_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class Captures:
    """Graphs that were captured while the trace was taken; a launch that is recorded brings no work to a device."""

    count: int = 0
    time_ns: int = 0  # union over threads, on the host
    recorded_launches: int = 0  # within captures, without work on any device
    silent_launches: int = 0  # anywhere, without work on any device
    launches: int = 0  # calls that launch a kernel


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """The allocator's curve, thinned out: at which ns since the first report, how many bytes."""

    device: str
    peak_bytes: int
    at_ns: tuple[int, ...]
    allocated_bytes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class DeviceTrace:
    """One device of one file. The first eleven figures are a contract; `docs/reference/trace.md` defines them."""

    device: str
    kernel_count: int
    kernel_time_ns: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    copy_count: int
    copy_bytes: int
    graph_launches: int
    graph_kernel_count: int
    graph_kernel_time_ns: int
    skipped_events: int  # of the whole file
    model: str = ""
    compute_units: int = 0  # 0 where the file does not tell
    waves_per_unit: int = 0
    stream_count: int = 0
    set_count: int = 0
    categories: tuple[CategoryTime, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    idle: tuple[IdleTime, ...] = ()
    gaps: tuple[Gap, ...] = ()
    copies: tuple[CopyRow, ...] = ()
    graphs: tuple[GraphRow, ...] = ()
    launches: Launches = Launches()
    operators: tuple[OperatorRow, ...] = ()
    collectives: CollectiveTime = CollectiveTime()


@dataclass(frozen=True, kw_only=True)
class CounterRow:
    """A hardware counter of one kernel, over all dispatches that were counted."""

    kernel: str
    counter: str
    count: int
    mean: float
    time_ns: float | None = None  # of a dispatch while it was counted, where the file tells


@dataclass(frozen=True, kw_only=True)
class KernelUse:
    """What the counters of one kernel say, mean over its dispatches; `None` where they say nothing."""

    kernel: str
    dispatches: int
    time_ns: float | None = None
    occupancy: float | None = None  # of the wavefronts that the chip can hold; 1 is all of them
    l2_hit: float | None = None  # of the requests to the L2 cache
    bytes: float | None = None  # read from memory and written to it
    gb_per_s: float | None = None
    of_peak: float | None = None  # of the chip's bandwidth; 1 is all of it


@dataclass(frozen=True, kw_only=True)
class HardwareUse:
    """How well kernels use the chip, as far as counters and catalogue tell; `unknown` says what they do not."""

    chip: str
    compute_units: int
    waves_per_unit: int | None
    peak_gb_per_s: float | None
    kernels: tuple[KernelUse, ...]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """One file: what it is, what of it could be read, and its devices."""

    file: str
    producer: str
    events: int
    skipped_events: int
    set_aside: Mapping[str, int] = field(default_factory=dict)
    damage: tuple[str, ...] = ()
    rank: int | None = None
    platform: str = ""
    devices: tuple[DeviceTrace, ...] = ()
    steps: tuple[Region, ...] = ()
    regions: tuple[Region, ...] = ()
    graph_breaks: int = 0
    captures: Captures = Captures()
    memory: tuple[MemoryUse, ...] = ()
    counters: tuple[CounterRow, ...] = ()
    hardware: HardwareUse | None = None
    compiles: CompileJoin | None = None
    joined: tuple[str, ...] = ()  # other files whose counters are among these


class Change(Enum):
    """What became of a kernel."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    REPLACED = "replaced"  # another kernel stands at the same place of the same operator
    ADDED = "added"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class KernelChange:
    """A kernel before and after; empty on the side where it does not exist."""

    change: Change
    category: Category
    operator: str
    before: str
    after: str
    before_count: int
    after_count: int
    before_ns: int
    after_ns: int

    @property
    def delta_ns(self) -> int:
        """How much more time it takes now."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True, kw_only=True)
class FigureChange:
    """One figure before and after."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class TraceDifference:
    """Two runs side by side: the busiest device of each."""

    before: str
    after: str
    before_model: str
    after_model: str
    figures: tuple[FigureChange, ...]
    categories: tuple[FigureChange, ...]
    idle: tuple[FigureChange, ...]
    kernels: tuple[KernelChange, ...]


@dataclass(frozen=True, kw_only=True)
class RankRow:
    """One rank among those that were traced together."""

    rank: int
    file: str
    device: str
    span_ns: int
    compute_ns: int  # busy with anything but communication
    communication_ns: int
    exposed_ns: int
    idle_ns: int


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """All ranks of a job, slowest first."""

    rows: tuple[RankRow, ...]


@dataclass(frozen=True, kw_only=True)
class TraceRecord:
    """Files that were read together, and the advice that follows from them."""

    files: tuple[TraceFile, ...]
    findings: tuple[Finding, ...] = ()
    ranks: Ranks | None = None
