"""The result of `rocsolid trace`: where the GPU time went, what caused idle time, and the findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rocsolid.model.compile_log import GraphBreak
from rocsolid.model.finding import Finding
from rocsolid.model.notebook import NotebookResult

TRACE_SCHEMA = "rocsolid/trace/1"
TRACE_COMPARISON_SCHEMA = "rocsolid/trace-comparison/1"


class Category(Enum):
    """What a kernel computes, according to its name."""

    GEMM = "gemm"
    ATTENTION = "attention"
    NORM = "normalisation"
    ELEMENTWISE = "elementwise"
    CONVOLUTION = "convolution"
    REDUCTION = "reduction"
    COPY = "copy"
    COLLECTIVE = "collective"
    OTHER = "other"


class IdleCause(Enum):
    """Why a device was idle in a gap."""

    LATE_LAUNCH = "late-launch"  # the next launch call began after the device had become idle
    LAUNCH_IN_PROGRESS = "launch-in-progress"  # the next launch call was running when the device became idle
    SYNC = "sync"  # a late launch, because the host was waiting for the device
    BLOCKING_COPY = "blocking-copy"  # a late launch, because the host was in a blocking copy
    DATA_LOADER = "data-loader"  # a late launch, because the host was in its data loader
    STREAM_DEPENDENCY = "stream-dependency"  # the next work was queued, after work of another stream
    BETWEEN_GRAPH_NODES = "between-graph-nodes"  # between two kernels of one replay; the profiler can cause these gaps
    QUEUED = "queued"  # the next work was already queued in the same stream
    UNKNOWN = "unknown"  # the launch of the next work is not in the trace


class DoubtKind(Enum):
    """Why a trace cannot be true, or cannot be complete."""

    LOST_KERNELS = "lost-kernels"  # work that ran is not in the trace
    LOST_CALLS = "lost-calls"  # launches are not in the trace
    OVERLAP = "overlap"  # events of one stream run at the same time
    DURATIONS = "durations"  # a kernel takes longer than the trace
    CLOCK_SHIFT = "clock-shift"  # the clocks of host and device differ
    GAPS_IN_DURATIONS = "gaps-in-durations"  # a kernel lasts until the next one starts
    NO_HOST_EVENTS = "no-host-events"  # the file has only device events


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A reason not to believe some numbers of a trace."""

    kind: DoubtKind
    text: str
    device: str = ""  # empty for the whole file
    count: int = 0
    time_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class CategoryTime:
    """The number and the time of the kernels, copies and memsets of one category."""

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
    graph_count: int  # runs that a graph replay launched
    launch_config: str  # grid, block, registers and shared memory; of several, the one with the most total time
    operator: str  # the operator that launched it for the most time
    position: int = 0  # the index among all kernels, ordered by first start
    location: str = ""  # the Python line that launched it, with `--stacks`
    label: str = ""  # a short name that tells it apart from similar kernels, such as `Tensile MT128x192x64 bf16`
    tflops: float | None = None  # of the operators whose time it takes most of; None when their cost is unknown
    gb_per_s: float | None = None
    roofline: float | None = None  # the least possible time / the time it took


@dataclass(frozen=True, kw_only=True)
class IdleTime:
    """The idle time that has one cause."""

    cause: IdleCause
    gap_count: int
    time_ns: int
    capture_ns: int = 0  # the part during which a graph was being captured
    in_call_ns: int = 0  # the part during which the call that launched the next work was running
    in_graph_launch_ns: int = 0  # of this, in calls that launch a graph
    longest_ns: int = 0  # the longest gap


@dataclass(frozen=True, kw_only=True)
class Gap:
    """One stretch of idle time."""

    start_ns: int  # since the device's first event
    duration_ns: int
    cause: IdleCause
    previous_work: str  # the kernel or copy that ended last before the gap
    next_work: str  # the kernel or copy that ended the gap
    launch_call: str  # the runtime call that launched `next_work`
    operator: str  # the operator that launched `next_work`
    host_activity: str  # what the launching thread did during the gap
    host_operator: str = ""  # the operator that made the host wait, such as aten::item


@dataclass(frozen=True, kw_only=True)
class CopyRow:
    """Copies with one direction and one kind of memory."""

    direction: str
    memory: str  # pinned or pageable; empty when the trace does not record it
    count: int
    bytes: int
    time_ns: int
    unknown_size_count: int = 0  # copies whose size the trace does not record

    @property
    def gb_per_s(self) -> float:
        """Bytes per nanosecond of copying, which is the same number as GB/s."""
        return self.bytes / self.time_ns if self.time_ns else 0.0


@dataclass(frozen=True, kw_only=True)
class GraphRow:
    """Graph replays with the same number of kernels and the same kernel names, which are probably one graph."""

    launches: int
    kernels_each: int
    kernel_time_ns: int
    first_kernel: str
    launch_mean_ns: float


@dataclass(frozen=True, kw_only=True)
class RuntimeCallRow:
    """All calls of one runtime function, such as hipLaunchKernel."""

    name: str
    count: int
    total_ns: int
    p50_ns: int


@dataclass(frozen=True, kw_only=True)
class LaunchStats:
    """Launch calls, launch latency and synchronisations."""

    launch_count: int = 0
    call_p50_ns: int = 0  # host time in the launch call
    latency_p50_ns: int = 0  # launch latency: from the launch call to the start on the device
    latency_p99_ns: int = 0
    short_kernel_count: int = 0  # kernels that take less time than their launch call
    unlinked_count: int = 0  # device events whose launch is not in the trace
    sync_count: int = 0
    sync_time_ns: int = 0
    calls: tuple[RuntimeCallRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KernelShare:
    """What one kernel contributes to an operator."""

    name: str
    count: int
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class OperatorRow:
    """Device time of the work that one operator launched for one set of input shapes, outside or inside graphs.

    The times of all rows add up to the time of all device events.
    """

    name: str  # empty when the operator is unknown
    count: int  # device events
    device_ns: int
    host_ns: int
    category: Category = Category.OTHER
    shape: str = ""  # of the input tensors; empty when not recorded
    element_type: str = ""  # of the first tensor
    in_graph: bool = False
    calls: int = 0  # of the operator
    kernels: tuple[KernelShare, ...] = ()  # the most time first
    flops: float | None = None  # of all calls; None when the cost is unknown
    bytes: float | None = None  # that have to be moved at least
    arithmetic: str = ""  # the type of the operations, such as bf16; empty when only the bytes matter
    roofline: float | None = None  # the least possible time / the time it took; None when the peaks are unknown

    @property
    def tflops(self) -> float | None:
        """Operations per second, in 10^12."""
        return self.flops / self.device_ns / 1e3 if self.flops and self.device_ns else None

    @property
    def gb_per_s(self) -> float | None:
        """Bytes that have to be moved per second, in 10^9."""
        return self.bytes / self.device_ns if self.bytes and self.device_ns else None


@dataclass(frozen=True, kw_only=True)
class WorkOrder:
    """Device events in the order of their start, to match them with those of another trace.

    The last three tuples have one value per event.
    """

    names: tuple[str, ...] = ()  # of kernels and copies
    name: tuple[int, ...] = ()  # index into `names`
    operator: tuple[int, ...] = ()  # index into the operators of the device
    time_ns: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CollectiveRow:
    """Collectives of one kind with one message size."""

    name: str
    count: int
    bytes: int  # of one message
    ranks: int
    time_ns: int
    exposed_ns: int  # while no other work ran
    shortest_ns: int  # the longest minus the shortest is the skew: waiting for other ranks
    longest_ns: int
    bus_gb_per_s: float  # at the shortest time, which waits least


@dataclass(frozen=True, kw_only=True)
class DeviceRoofline:
    """The peaks that the roofline is computed with."""

    chip: str
    memory_gb_per_s: float
    tflops: Mapping[str, float]
    inferred: bool  # from the number of compute units and the memory, because the trace does not name the device


@dataclass(frozen=True, kw_only=True)
class HostRegion:
    """A compiled region, a profiler step or another annotation, with its time on the host."""

    name: str
    count: int
    total_ns: int
    p50_ns: int
    shortest_ns: int
    longest_ns: int
    function: str = ""  # of a compiled region, with `--torch-trace`
    location: str = ""  # file:line of that function
    reason: str = ""  # the graph break or recompile that made it a separate region


@dataclass(frozen=True, kw_only=True)
class CompileLogMatch:
    """Which compiled regions of a trace a TORCH_TRACE log contains, and its graph breaks."""

    source: str
    torch: str
    matched_regions: int  # compiled regions whose function and line the log contains
    unmatched_regions: tuple[str, ...] = ()  # compiled regions that are not in the log
    breaks: tuple[GraphBreak, ...] = ()  # graph breaks in functions that the trace shows
    other_breaks: int = 0  # the number of graph breaks in other functions


@dataclass(frozen=True, kw_only=True)
class CollectiveTime:
    """The time in communication between devices."""

    count: int = 0
    time_ns: int = 0  # union over streams
    exposed_ns: int = 0  # the part during which no other work ran


@dataclass(frozen=True, kw_only=True)
class GraphCaptures:
    """Graphs captured while the trace was recorded. A launch that is captured runs nothing on the device."""

    count: int = 0
    time_ns: int = 0  # host time, union over threads
    recorded_launches: int = 0  # launches during captures, without work on a device
    launches_without_work: int = 0  # launches at any time, without work on a device
    launches: int = 0  # all kernel launch calls


@dataclass(frozen=True, kw_only=True)
class MemoryCurve:
    """Allocated bytes over time, in at most 1500 points. Times are relative to the first allocator event."""

    device: str
    peak_bytes: int
    times_ns: tuple[int, ...]
    allocated_bytes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class DeviceTrace:
    """One device of one file. `docs/reference/trace.md` defines the fields; those without a default are always set."""

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
    compute_units: int = 0  # 0 when the file does not record it
    waves_per_unit: int = 0
    stream_count: int = 0
    memset_count: int = 0
    categories: tuple[CategoryTime, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    idle: tuple[IdleTime, ...] = ()
    gaps: tuple[Gap, ...] = ()
    copies: tuple[CopyRow, ...] = ()
    graphs: tuple[GraphRow, ...] = ()
    launches: LaunchStats = LaunchStats()
    operators: tuple[OperatorRow, ...] = ()
    order: WorkOrder = WorkOrder()  # empty when there are more than 20,000 events
    collectives: CollectiveTime = CollectiveTime()
    messages: tuple[CollectiveRow, ...] = ()  # collectives by kind and size, where the trace records it
    peaks: DeviceRoofline | None = None
    unknown_ns: int = 0  # kernel time of category `other`


@dataclass(frozen=True, kw_only=True)
class CounterRow:
    """A hardware counter of one kernel, over all dispatches that were counted."""

    kernel: str
    counter: str
    count: int
    mean: float
    time_ns: float | None = None  # mean time of a counted dispatch; None when the file does not record it


@dataclass(frozen=True, kw_only=True)
class KernelUtilization:
    """How well one kernel uses the GPU, as means over its dispatches; `None` when the counters were not collected."""

    kernel: str
    dispatches: int
    time_ns: float | None = None
    occupancy: float | None = None  # wavefronts in flight / wavefronts that the GPU can hold
    l2_hit_rate: float | None = None
    bytes: float | None = None  # read from memory and written to it
    gb_per_s: float | None = None
    peak_fraction: float | None = None  # gb_per_s / the GPU's peak bandwidth


@dataclass(frozen=True, kw_only=True)
class HardwareUtilization:
    """Utilization of the GPU by each kernel, from hardware counters."""

    chip: str
    compute_units: int
    waves_per_unit: int | None
    peak_gb_per_s: float | None
    kernels: tuple[KernelUtilization, ...]
    unknown: tuple[str, ...] = ()  # one sentence for each metric that could not be computed


@dataclass(frozen=True, kw_only=True)
class CaptureMatch:
    """How many kernels of graph replays have their operator from a trace of the capture."""

    file: str  # the trace of the capture
    graphs: int  # that were captured in it
    launches: int  # in these captures
    kernels: int  # in graph replays
    matched_kernels: int  # whose launch was found in a capture
    kernels_with_operator: int


@dataclass(frozen=True, kw_only=True)
class CpuOperatorRow:
    """All calls of one operator in a trace without GPU work."""

    name: str
    calls: int
    own_ns: int  # without the operators that it calls
    total_ns: int  # with them
    allocations: int = 0  # without the operators that it calls; 0 if the trace does not record memory
    allocated_bytes: int = 0  # the sum of these allocations


@dataclass(frozen=True, kw_only=True)
class CpuTrace:
    """The operators on the CPU, in a trace without GPU work."""

    span_ns: int  # from the first operator to the end of the last
    busy_ns: int  # the part of the span in which at least one operator ran
    thread_count: int  # that ran operators
    operators: tuple[CpuOperatorRow, ...]  # the most own time first


@dataclass(frozen=True, kw_only=True)
class ModuleRow:
    """Device time of the work that one `nn.Module` launched; without GPU work, the time of its CPU operators."""

    name: str
    calls: int
    device_ns: int  # with the modules inside it
    own_ns: int  # without them


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """The analysis of one file."""

    file: str
    producer: str
    events: int
    skipped_events: int  # broken events
    unused_events: Mapping[str, int] = field(default_factory=dict)  # valid events that the analysis does not need
    damage: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    rank: int | None = None
    platform: str = ""
    devices: tuple[DeviceTrace, ...] = ()
    steps: tuple[HostRegion, ...] = ()
    regions: tuple[HostRegion, ...] = ()
    graph_breaks: int = 0  # graph breaks or recompiles: the number of compiled regions minus one
    captures: GraphCaptures = GraphCaptures()
    memory: tuple[MemoryCurve, ...] = ()
    counters: tuple[CounterRow, ...] = ()
    hardware: HardwareUtilization | None = None
    compile_log: CompileLogMatch | None = None
    capture: CaptureMatch | None = None  # with `--capture`
    modules: tuple[ModuleRow, ...] = ()  # with `--stacks` or without GPU work, where the trace contains modules
    counter_files: tuple[str, ...] = ()  # other files that some of `counters` come from
    cpu: CpuTrace | None = None  # only when there is no GPU work


class KernelChangeKind(Enum):
    """How a kernel changed between two traces."""

    SAME = "same"
    FASTER = "faster"  # less total time, and not only because of fewer runs
    SLOWER = "slower"
    FEWER = "fewer runs"  # less total time although one run takes as long or longer
    MORE = "more runs"
    REPLACED = "replaced"  # the same operator launches another kernel at the same position
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, kw_only=True)
class KernelChange:
    """A kernel before and after. A name is empty if the kernel exists only in the other trace."""

    change: KernelChangeKind
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
        """The time after, minus the time before."""
        return self.after_ns - self.before_ns


class MatchLevel(Enum):
    """What the work of two traces has in common."""

    SHAPE = "operator and shape"
    OPERATOR = "operator"
    ORDER = "order"  # the same category at the same place in the order of all work
    CATEGORY = "category"
    NONE = "unmatched"


@dataclass(frozen=True, kw_only=True)
class OperatorChange:
    """Work that two traces have in common, before and after. The changes of all rows add up to the total difference."""

    match: MatchLevel
    operator: str  # empty when it is unknown or differs
    shape: str  # empty when shapes are unknown or differ
    category: Category
    before_count: int  # device events
    after_count: int
    before_ns: int
    after_ns: int
    before_kernel: str  # with the most time
    after_kernel: str

    @property
    def delta_ns(self) -> int:
        """The time after, minus the time before."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True, kw_only=True)
class MetricChange:
    """One metric before and after."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class TraceComparison(NotebookResult):
    """The comparison of two traces, on the busiest device of each; or of their CPU operators if both have no GPU work."""

    before: str
    after: str
    before_model: str
    after_model: str
    metrics: tuple[MetricChange, ...]
    categories: tuple[MetricChange, ...]
    idle: tuple[MetricChange, ...]
    kernels: tuple[KernelChange, ...]
    operators: tuple[OperatorChange, ...] = ()  # the largest change first
    by_operator: tuple[MetricChange, ...] = ()  # the same, added up by operator, or by category where it is unknown
    modules: tuple[MetricChange, ...] = ()  # with `stacks`: own device time by class of `nn.Module`
    doubts: tuple[str, ...] = ()  # why one of the traces cannot be true, or cannot be compared
    labels: Mapping[str, str] = field(default_factory=dict)  # short names of kernels
    steps: tuple[MetricChange, ...] = ()  # host time of the profiler steps that both traces have, in their order
    before_steps: int = 0
    after_steps: int = 0
    cpu: bool = False  # CPU operators were compared: all times are theirs, and there are no kernels


@dataclass(frozen=True, kw_only=True)
class RankRow:
    """The busiest device of one rank."""

    rank: int
    file: str
    device: str
    span_ns: int
    compute_ns: int  # busy time without exposed communication
    communication_ns: int
    exposed_ns: int
    idle_ns: int


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """All ranks of a job, slowest first."""

    rows: tuple[RankRow, ...]


@dataclass(frozen=True, kw_only=True)
class TraceReport(NotebookResult):
    """The analysis of one or more files, and the findings about them."""

    files: tuple[TraceFile, ...]
    findings: tuple[Finding, ...] = ()
    ranks: Ranks | None = None
