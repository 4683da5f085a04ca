"""What can be heard of a compile while it runs, or read from the trace of one that is over.

Live hooks and trace files both speak these words, so that one function makes the log from either. A *unit* is one frame that
Dynamo compiles; its backward graph, compiled later and often in another thread, belongs to the same unit.
Times are seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Began:
    """Dynamo begins with a frame."""

    unit: int
    at_s: float
    thread: str
    function: str
    file: str
    line: int
    called_from: str = ""  # the user's line that made the call


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Dynamo is done with the frame, with code or without."""

    unit: int
    at_s: float
    compiled: bool
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Named:
    """The unit has torch's own id, such as 0/0; after a reset torch gives the same ids again."""

    unit: int
    compile_id: str


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One thing the compiler timed, nested `depth` deep among its kind."""

    unit: int
    name: str
    start_s: float
    end_s: float
    own_s: float  # without what was timed inside it
    depth: int
    thread: str
    backward: bool = False


@dataclass(frozen=True, kw_only=True)
class Traced:
    """Dynamo hands a graph to the backend."""

    unit: int
    nodes: int
    inputs: int
    operators: Mapping[str, int]
    places: Mapping[str, str] = field(default_factory=dict)  # name of a node to the user's line


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """Inductor takes a graph of ATen operators."""

    unit: int
    backward: bool
    nodes: int
    operators: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Coded:
    """Inductor's program for a graph is there, fresh or from a cache."""

    unit: int
    backward: bool
    source: str
    nodes_before_fusion: int = 0
    graphs_wanted: bool = False  # capture in a device graph was asked for
    graphs_refused: str = ""  # and why Inductor will not


@dataclass(frozen=True, kw_only=True)
class Cached:
    """A cache was asked: `autograd` holds whole frames, `fx` single graphs."""

    unit: int
    cache: str
    state: str  # hit, miss, bypass, disabled
    why: str = ""
    backward: bool = False


@dataclass(frozen=True, kw_only=True)
class Summed:
    """Torch's own summary of a compile."""

    unit: int
    backward: bool
    facts: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Broke:
    """The graph ended before the function did."""

    unit: int
    kind: str  # torch's words for it: "Data-dependent branching"
    message: str
    frames: tuple[str, ...]  # file:line, outermost first, the break last
    function: str = ""
    whole_frame: bool = False  # nothing of the frame was compiled
    fatal: bool = False  # the call fails instead of falling back to Python


Event = Began | Ended | Named | Timed | Traced | Lowered | Coded | Cached | Summed | Broke
