"""Events of torch's compiler, recorded live or read from the files that TORCH_TRACE and TORCH_COMPILE_DEBUG write.

`observe.build_log` turns these events into a `CompileLog`; it does not matter where they come from. A *unit* is one frame that
Dynamo compiles. Its backward graph belongs to the same unit, although it is compiled later and often in another thread.
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
    """Torch assigned an id to the unit, such as 0/0. After `torch._dynamo.reset()`, the ids start at 0/0 again."""

    unit: int
    compile_id: str


@dataclass(frozen=True, kw_only=True)
class PhaseTimed:
    """One phase of a compile that torch timed."""

    unit: int
    name: str
    start_s: float
    end_s: float
    own_s: float  # without the phases inside it
    depth: int  # number of phases that contain it
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
class LoweringStarted:
    """Inductor starts to lower a graph of ATen operators to kernels."""

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
    """Torch looked up a frame (cache `autograd`) or a single graph (cache `fx`)."""

    unit: int
    cache: str
    state: str  # hit, miss, bypass, disabled
    reason: str = ""
    backward: bool = False


@dataclass(frozen=True, kw_only=True)
class MetricsReported:
    """Torch reported its metrics of one compile (`CompilationMetrics`)."""

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
    # Start and end of the expression in each frame's line, in bytes; (0, 0) if unknown.
    columns: tuple[tuple[int, int], ...] = ()
    function: str = ""
    frame_skipped: bool = False  # nothing of the frame was compiled
    fatal: bool = False  # the call fails instead of running in eager


CompileEvent = (
    CompileStarted
    | CompileEnded
    | CompileIdAssigned
    | PhaseTimed
    | GraphTraced
    | LoweringStarted
    | CodeGenerated
    | CacheLookup
    | MetricsReported
    | BreakReported
)
