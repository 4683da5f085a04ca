"""What became of a captured function: its graphs, its counters, what was refused and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

CAPTURE_SCHEMA = "rocsolid/capture/1"


class Reason(Enum):
    """Why a call is not answered by a graph, in the words of the counters."""

    ARGUMENT = "argument"
    BUCKET = "bucket"
    GRADIENT = "gradient"
    SHARED_MEMORY = "shared memory"
    MEMORY = "memory"
    COMPILE = "compile"
    EMPTY = "empty"
    SIDE_EFFECT = "side effect"
    RESULT = "result"
    PADDING = "padding"
    WRONG_RESULT = "wrong result"
    PIECE = "piece"
    HOST_READ = "host read"
    HOST_COPY = "host copy"
    DATA_SHAPE = "data-dependent shape"
    RANDOM_STATE = "random state"
    LIMIT = "limit"
    CLOSED = "closed"
    FROZEN = "frozen"
    NO_DEVICE = "no device"
    FIRST_CALL = "first call"
    UNJOINED = "unjoined stream"
    FOREIGN_EVENT = "foreign event"
    LEGACY_STREAM = "legacy stream"
    ANOTHER_THREAD = "another thread"
    RUNTIME_CALL = "runtime call"
    EVENT = "event"
    TRIAL = "trial"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class GraphRecord:
    """One graph: which calls it answers, and what it cost."""

    key: Mapping[str, str]  # every argument by its path, and the state of torch
    hits: int
    nodes: int | None  # operations in the graph, where that can be known
    bytes: int  # device memory that the graph holds
    capture_ms: float
    error: float | None  # largest difference from eager, relative to eager's size; None when it was not compared
    checks: int  # how often a replay was compared with eager
    mutates: tuple[str, ...] = ()  # arguments and tensors that the function writes to


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A call that runs eagerly, and why."""

    key: Mapping[str, str]
    reason: Reason
    detail: str  # what happened and what to do
    place: str = ""  # the user's line, where one is to blame


@dataclass(frozen=True, kw_only=True)
class CaptureReport:
    """Everything a captured function knows of itself."""

    name: str
    backend: str
    graphs: tuple[GraphRecord, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    invalidated: tuple[str, ...] = ()  # why graphs were thrown away, newest last
    replays: int = 0
    eager_calls: Mapping[str, int] = field(default_factory=dict)  # by reason
    captures: int = 0
    evictions: int = 0
    checks: int = 0
    check_failures: int = 0
    bytes: int = 0
    frozen: bool = False
    alarm: str = ""  # set when graphs are there, or were asked for, and calls go past them

    def counters(self) -> dict[str, int]:
        """Flat numbers for a server's metrics, such as `rocsolid_replays_total`."""
        flat = {
            "rocsolid_replays_total": self.replays,
            "rocsolid_captures_total": self.captures,
            "rocsolid_evictions_total": self.evictions,
            "rocsolid_checks_total": self.checks,
            "rocsolid_check_failures_total": self.check_failures,
            "rocsolid_graphs": len(self.graphs),
            "rocsolid_graph_bytes": self.bytes,
            "rocsolid_eager_calls_total": sum(self.eager_calls.values()),
        }
        flat.update({f'rocsolid_eager_calls_total{{reason="{why}"}}': n for why, n in self.eager_calls.items()})
        return flat

    def json(self) -> str:
        """As a document that `rocsolid report` reads."""
        from rocsolid.model.codec import dumps

        return dumps(CAPTURE_SCHEMA, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    def __str__(self) -> str:
        return "\n".join(_lines(self))


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a call would do, and why."""

    action: str  # replay, capture or eager
    why: str
    differences: tuple[str, ...] = ()  # from the nearest graph there is

    def __str__(self) -> str:
        return "\n".join([f"{self.action}: {self.why}", *(f"  {line}" for line in self.differences)])


def _lines(report: CaptureReport) -> list[str]:
    eager = sum(report.eager_calls.values())
    lines = [
        f"{report.name} ({report.backend}): {_many(len(report.graphs), 'graph')}, {_many(report.replays, 'replay')}, "
        f"{_many(eager, 'eager call')}, "
        f"{report.bytes / 2**20:.1f} MiB" + (", frozen" if report.frozen else "")
    ]
    for graph in report.graphs:
        checked = (
            f"{_many(graph.checks, 'check')}, error {graph.error:.1e}" if graph.error is not None else "not compared"
        )
        nodes = _many(graph.nodes, "node") if graph.nodes is not None else "nodes unknown"
        lines.append(
            f"  {_brief(graph.key)}: {_many(graph.hits, 'hit')}, {nodes}, {graph.bytes / 2**20:.1f} MiB, "
            f"captured in {graph.capture_ms:.0f} ms, {checked}"
        )
    lines += [f"  eager {_many(count, 'time')}: {why}" for why, count in report.eager_calls.items()]
    lines += [f"  refused {_brief(r.key)}: {r.detail}" + (f" ({r.place})" if r.place else "") for r in report.refusals]
    lines += [f"  thrown away: {why}" for why in report.invalidated]
    if report.alarm:
        lines.append(f"  ALARM: {report.alarm}")
    return lines


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _brief(key: Mapping[str, str]) -> str:
    shown = [f"{path.removeprefix('argument ')}: {what}" for path, what in key.items() if path.startswith("argument")]
    few = 4
    return ", ".join(shown[:few]) + (f" and {len(shown) - few} more" if len(shown) > few else "")
