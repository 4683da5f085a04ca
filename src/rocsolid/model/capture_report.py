"""The report of a captured function: its graphs, its counters, and which calls run in eager and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from rocsolid.model.notebook import NotebookResult

CAPTURE_SCHEMA = "rocsolid/capture/1"
_MAX_LISTED_ARGUMENTS = 4
_MAX_LISTED_MODULES = 3


class Reason(Enum):
    """Why a call runs in eager. The values are the keys of `CaptureReport.eager_calls` and of the metrics."""

    ARGUMENT = "argument"  # an argument cannot be part of the cache key, or cannot be copied into a static buffer
    BUCKET = "bucket"  # a bucket does not fit the call
    GRADIENT = "gradient"  # a result requires grad, and backward=True was not given
    SHARED_MEMORY = "shared memory"  # an argument that is written to shares memory with another one
    OUT_OF_MEMORY = "out of memory"  # not enough GPU memory for the graph
    MEMORY_BUDGET = "memory budget"  # the graph is larger than memory_budget_bytes=
    COMPILE = "compile"  # torch.compile would compile during the capture
    NO_GPU_WORK = "no GPU work"  # the call launches nothing that a graph could replay
    REACHABLE_STATE = "reachable state"  # the function reaches too much Python state to check it at each replay
    CHANGING_STATE = "changing state"  # Python state that the function reaches changes between most calls
    SIDE_EFFECT = "side effect"  # the function changes Python state, which a replay does not repeat
    TORCH_MODE = "torch mode"  # a mode such as TorchDispatchMode or torch.vmap is active, which a replay would bypass
    RESULT_TYPE = "unsupported result type"
    PADDING = "padding"  # the padding of a bucket changes the result
    WRONG_RESULT = "wrong result"  # a replay differs from eager
    EAGER_MODULE = "eager module"  # a module of eager_modules= returned other shapes than during the capture
    HOST_SYNC = "host sync"
    HOST_COPY = "host copy"
    DATA_SHAPE = "data-dependent shape"
    RNG_STATE = "rng state"  # the random number state is read or set on the CPU
    MAX_GRAPHS = "max_graphs"  # max_graphs=0
    CLOSED = "closed"  # the call came after close()
    FROZEN = "frozen"  # the call came after freeze() and has no graph
    NO_DEVICE = "no device"  # no tensor is on a GPU
    EAGER_BACKEND = "eager backend"  # backend="eager"
    CHECK = "check"  # the call was due to be compared with eager, and its result is that of eager
    FIRST_CALL = "first call"  # the eager run before a capture
    UNJOINED = "unjoined stream"
    UNCAPTURED_EVENT = "uncaptured event"  # the function waits for an event from outside the capture
    DEFAULT_STREAM = "default stream"
    ANOTHER_THREAD = "another thread"
    RUNTIME_CALL = "runtime call"  # a call that the HIP or CUDA runtime refuses during a capture
    EVENT_QUERIED = "event queried on CPU"
    CHILD_PROCESS = "child process"  # the capture failed in the child process in which it was tried first
    ERROR = "error"  # any other error


@dataclass(frozen=True, kw_only=True)
class GraphRecord:
    """One graph: which calls it serves, and what it cost."""

    key: Mapping[str, str]  # every argument by its path, and the torch state
    replays: int
    nodes: int | None  # number of operations in the graph; None where the runtime does not report it
    bytes: int  # memory that the graph and its static buffers hold
    capture_ms: float
    relative_error: float | None  # largest difference from eager, relative to eager; None when it was not compared
    checks: int  # how often a replay of this graph was compared with eager
    mutates: tuple[str, ...] = ()  # arguments and tensors that the function writes to


@dataclass(frozen=True, kw_only=True)
class Workaround:
    """Modules of one class that are not captured as they are.

    With `how="read"`, values that Python reads: each replay reads them again between graphs, and runs in eager if one has changed.
    """

    reason: Reason | None = None  # None where `eager_modules=` names the modules
    why: str = ""  # the operation that cannot be captured
    location: str = ""  # `file:line` of the user's code with that operation; empty where it is not known
    how: str = "eager"  # "eager": they run in eager between graphs; "read": see below; else another form of them, which is captured
    kind: str = ""  # their class
    modules: tuple[str, ...] = ()

    def __str__(self) -> str:
        hidden = len(self.modules) - _MAX_LISTED_MODULES
        names = ", ".join(f"`{name}`" for name in self.modules[:_MAX_LISTED_MODULES])
        more = f" and {hidden} more" if hidden > 0 else ""
        if self.how == "read":
            place = f" ({self.location.removeprefix(f'{Path.cwd()}/')})" if self.location else ""
            return f"reads values again in each call, and runs in eager if they differ, because {self.why}{place}"
        what = "in eager between graphs" if self.how == "eager" else f"captured as {self.how}"
        why = f", because {self.why}" if self.why else ""
        place = f" ({self.location.removeprefix(f'{Path.cwd()}/')})" if self.location else ""
        return f"{what}: {self.kind} {names}{more}{why}{place}"


@dataclass(frozen=True, kw_only=True)
class CheckFailure:
    """A replay that differed from eager in service: what `on_failure=` of `rs.every` is called with."""

    name: str  # of the function
    mismatches: tuple[str, ...]
    file: str = ""  # where inputs and results were saved


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A call that cannot be captured and runs in eager."""

    key: Mapping[str, str]
    reason: Reason
    message: str  # what happened, the source line where it is known, and the fix
    location: str = ""  # `file:line` of the user's code that cannot be captured; empty where it is not known


@dataclass(frozen=True, kw_only=True)
class CaptureReport(NotebookResult):
    """What `Captured.report()` returns."""

    name: str
    backend: str
    graphs: tuple[GraphRecord, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    workarounds: tuple[Workaround, ...] = ()  # modules that are not captured as they are
    invalidated: tuple[str, ...] = ()  # why graphs were invalidated, newest last
    replays: int = 0
    eager_calls: Mapping[str, int] = field(default_factory=dict)  # by reason
    captures: int = 0
    evictions: int = 0
    checks: int = 0  # comparisons of a replay with eager
    check_failures: int = 0
    bytes: int = 0  # memory that all graphs and their static buffers hold
    frozen: bool = False  # after freeze(): captures nothing new
    warning: str = ""  # set when most calls run in eager

    def counters(self) -> dict[str, int]:
        """Return the counters as flat numbers for a server's metrics, such as `rocsolid_replays_total`."""
        metrics = {
            "rocsolid_replays_total": self.replays,
            "rocsolid_captures_total": self.captures,
            "rocsolid_evictions_total": self.evictions,
            "rocsolid_checks_total": self.checks,
            "rocsolid_check_failures_total": self.check_failures,
            "rocsolid_graphs": len(self.graphs),
            "rocsolid_graph_bytes": self.bytes,
        }
        for reason, count in self.eager_calls.items():
            metrics[f'rocsolid_eager_calls_total{{reason="{reason}"}}'] = count
        return metrics

    def json(self) -> str:
        """Return the report as a JSON document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(CAPTURE_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        return "\n".join(_lines(self))


_PREDICTIONS = {"replay": "would replay", "capture": "would capture", "eager": "would run in eager"}


@dataclass(frozen=True, kw_only=True)
class CallPrediction:
    """What a call would do, and why: the result of `Captured.explain()`."""

    action: str  # "replay", "capture" or "eager"
    reason: str
    differences: tuple[str, ...] = ()  # from the most similar graph
    workarounds: tuple[str, ...] = ()  # modules that are not captured as they are

    def __str__(self) -> str:
        lines = (*self.differences, *self.workarounds)
        return "\n".join([f"{_PREDICTIONS[self.action]}: {self.reason}", *(f"  {line}" for line in lines)])


def _lines(report: CaptureReport) -> list[str]:
    eager = sum(report.eager_calls.values())
    lines = [
        f"{report.name} (backend {report.backend}): {_count(len(report.graphs), 'graph')}, {_count(report.replays, 'replay')}, "
        f"{_count(eager, 'eager call')}, "
        f"{report.bytes / 2**20:.1f} MiB" + (", frozen (captures nothing new)" if report.frozen else "")
    ]
    if not (report.graphs or report.replays or eager):
        lines.append("  never called; if the program calls another method than `forward`, capture that method")
    for graph in report.graphs:
        verification = (
            f"{_count(graph.checks, 'check')}, relative error {graph.relative_error:.1e}"
            if graph.relative_error is not None
            else "not verified"
        )
        nodes = _count(graph.nodes, "node") if graph.nodes is not None else "nodes unknown"
        lines.append(
            f"  graph {_short_key(graph.key)}: {_count(graph.replays, 'replay')}, {nodes}, "
            f"{graph.bytes / 2**20:.1f} MiB, captured in {graph.capture_ms:.0f} ms, {verification}"
        )
    lines += [f"  {workaround}" for workaround in report.workarounds]
    lines += [f"  {_count(count, 'eager call')}: {reason}" for reason, count in report.eager_calls.items()]
    for refusal in report.refusals:
        lines += [
            f"  not captured {_short_key(refusal.key)}",
            *(f"    {line}" for line in refusal.message.splitlines()),
        ]
    lines += [f"  invalidated: {reason}" for reason in report.invalidated]
    if report.warning:
        lines.append(f"  WARNING: {report.warning}")
    return lines


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _short_key(key: Mapping[str, str]) -> str:
    arguments = [
        f"{path.removeprefix('argument ')}: {spec}" for path, spec in key.items() if path.startswith("argument")
    ]
    hidden = len(arguments) - _MAX_LISTED_ARGUMENTS
    more = f", and {hidden} more" if hidden > 0 else ""
    return f"({', '.join(arguments[:_MAX_LISTED_ARGUMENTS])}{more})"
