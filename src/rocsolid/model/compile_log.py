"""What was compiled: one entry a graph, with its time, its origin, its kernels, and what was thought of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

COMPILES_SCHEMA = "rocsolid/compiles/1"
BREAKS_SCHEMA = "rocsolid/breaks/1"


class GraphKind(Enum):
    """Which way through the model a graph goes."""

    INFERENCE = "inference"
    FORWARD = "forward"
    BACKWARD = "backward"


class Cache(Enum):
    """Where a graph's program came from."""

    HIT = "hit"
    MISS = "miss"
    BYPASS = "bypass"  # the cache would not take this graph
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Span:
    """One thing the compiler did, for a timeline; seconds since the log began."""

    name: str  # as torch calls it
    phase: str  # as a person would
    start_s: float
    seconds: float
    depth: int


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel of a graph's program."""

    name: str
    kind: str  # triton, template, cpp, extern
    launches: int
    operators: tuple[str, ...] = ()  # the ATen operators fused into it
    places: tuple[str, ...] = ()  # the user's lines it came from
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Recompile:
    """Why a function was compiled once more."""

    against: str  # torch's id of the compile that did not fit
    guard: str  # the guard that failed, in torch's words
    place: str = ""  # the user's line that made the guard
    cause: str
    fix: str
    before: str = ""  # the fix as code
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class CompiledGraph:
    """One graph that was compiled."""

    number: int
    compile_id: str
    kind: GraphKind
    function: str
    place: str  # file:line of the function
    called_from: str = ""  # the user's line that made the call
    thread: str = ""
    start_s: float = 0.0  # since the log began
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds; they add up to `seconds`
    spans: tuple[Span, ...] = ()
    nodes: int = 0
    inputs: int = 0
    operators: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[Kernel, ...] = ()
    nodes_before_fusion: int = 0
    cache: Cache = Cache.OFF
    cache_why: str = ""
    recompile: Recompile | None = None
    device_graph: str = ""  # not asked for, captured, or why it was skipped
    autotuning_s: float = 0.0
    finished: bool = True

    @property
    def launches(self) -> int:
        """How many kernels one call of the graph starts."""
        return sum(k.launches for k in self.kernels)

    def __str__(self) -> str:
        again = f", again because {self.recompile.cause}" if self.recompile else ""
        launches = f", {self.launches} launches a call" if self.kernels else ""
        return (
            f"graph {self.number} {self.kind.value} {self.function}: {self.seconds:.2f} s, {self.nodes} nodes{launches}, "
            f"cache {self.cache.value}{again}"
        )


@dataclass(frozen=True, kw_only=True)
class GraphBreak:
    """A place where a graph ended before the function did."""

    id: str  # torch's own, such as GB0170
    kind: str  # torch's own words
    place: str  # file:line in the user's code
    function: str
    line: str = ""  # the text of that line
    cause: str  # in plain words
    fix: str
    before: str = ""  # the fix as code
    after: str = ""
    said: str = ""  # what torch said
    stack: tuple[str, ...] = ()
    whole_frame: bool = False  # nothing of the function was compiled
    fatal: bool = False  # the call fails instead of falling back to Python
    times: int = 1


@dataclass(frozen=True, kw_only=True)
class UncompiledFrame:
    """A function that Dynamo looked at and left to Python."""

    function: str
    place: str
    seconds: float
    why: str


@dataclass(frozen=True, kw_only=True)
class CompileLog:
    """Everything that was compiled in a stretch of time."""

    started_at: str
    seconds: float
    torch: str
    source: str = "live"  # live, trace, debug
    graphs: tuple[CompiledGraph, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    uncompiled: tuple[UncompiledFrame, ...] = ()
    workload: str = ""

    @property
    def compile_s(self) -> float:
        """Seconds spent compiling, over all threads."""
        return sum(g.seconds for g in self.graphs) + sum(f.seconds for f in self.uncompiled)

    def __str__(self) -> str:
        head = f"{len(self.graphs)} graphs, {self.compile_s:.1f} s of compiling, {len(self.breaks)} graph breaks"
        broken = [f"  break at {b.place}: {b.cause}" for b in self.breaks]
        return "\n".join([head, *(f"  {graph}" for graph in self.graphs), *broken])


@dataclass(frozen=True, kw_only=True)
class BreakReport:
    """What a call falls into, and why."""

    function: str
    torch: str
    breaks: tuple[GraphBreak, ...]
    graphs: tuple[CompiledGraph, ...]
    uncompiled: tuple[UncompiledFrame, ...] = ()
    backend: str = "inductor"

    def __str__(self) -> str:
        graphs = f"{len(self.graphs)} graph{'' if len(self.graphs) == 1 else 's'}"
        if not self.breaks:
            return f"{self.function}: no graph break, {graphs}"
        lines = [f"{self.function}: {len(self.breaks)} graph break{'' if len(self.breaks) == 1 else 's'}, {graphs}"]
        for found in self.breaks:
            lines += [f"  {found.place} {found.id}: {found.cause}", f"    fix: {found.fix}"]
        return "\n".join(lines)
