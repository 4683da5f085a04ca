"""Events of torch's compiler, recorded live or read from the files that TORCH_TRACE and TORCH_COMPILE_DEBUG write.

`observe.build_log` turns a list of these events into a `CompileLog`, whatever their source. A *unit* is one frame that Dynamo
compiles. Its backward graph, compiled later and often in another thread, belongs to the same unit.
Times are seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class CompileStarted:
    """Dynamo started to compile a frame."""

    unit: int
    at_s: float
    thread: str
    function: str
    file: str
    line: int
    called_from: str = ""  # file:line of the user's call


@dataclass(frozen=True, kw_only=True)
class CompileEnded:
    """Dynamo finished the frame, with compiled code or without."""

    unit: int
    at_s: float
    compiled: bool
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class CompileIdAssigned:
    """Torch's id for the unit, such as 0/0. `torch._dynamo.reset()` starts the ids again from 0/0."""

    unit: int
    compile_id: str


@dataclass(frozen=True, kw_only=True)
class PhaseTimed:
    """One phase that torch timed; `depth` counts the phases around it."""

    unit: int
    name: str
    start_s: float
    end_s: float
    own_s: float  # without the phases inside it
    depth: int
    thread: str
    backward: bool = False


@dataclass(frozen=True, kw_only=True)
class GraphTraced:
    """Dynamo passed an FX graph to the backend."""

    unit: int
    nodes: int
    inputs: int
    operators: Mapping[str, int]
    locations: Mapping[str, str] = field(default_factory=dict)  # name of a node -> the user's file:line


@dataclass(frozen=True, kw_only=True)
class GraphLowered:
    """Inductor received a graph of ATen operators."""

    unit: int
    backward: bool
    nodes: int
    operators: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class CodeGenerated:
    """Inductor's output code for a graph is ready, newly generated or loaded from a cache."""

    unit: int
    backward: bool
    source: str
    nodes_before_fusion: int = 0
    cuda_graph_requested: bool = False
    cuda_graph_skipped: str = ""  # why Inductor does not use a CUDA graph


@dataclass(frozen=True, kw_only=True)
class CacheLookup:
    """A lookup in a cache: `autograd` stores whole frames, `fx` single graphs."""

    unit: int
    cache: str
    state: str  # hit, miss, bypass, disabled
    reason: str = ""
    backward: bool = False


@dataclass(frozen=True, kw_only=True)
class MetricsReported:
    """Torch's own metrics of one compile (`CompilationMetrics`)."""

    unit: int
    backward: bool
    metrics: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class BreakReported:
    """Dynamo reported a graph break."""

    unit: int
    kind: str  # torch's name for it: "Data-dependent branching"
    message: str
    frames: tuple[str, ...]  # file:line, outermost first; the break is in the last
    columns: tuple[
        tuple[int, int], ...
    ] = ()  # start and end of the expression in each frame's line, in bytes; (0, 0): unknown
    function: str = ""
    whole_frame: bool = False  # nothing of the frame was compiled
    fatal: bool = False  # the call fails instead of running in eager


CompileEvent = (
    CompileStarted
    | CompileEnded
    | CompileIdAssigned
    | PhaseTimed
    | GraphTraced
    | GraphLowered
    | CodeGenerated
    | CacheLookup
    | MetricsReported
    | BreakReported
)
