"""Records compile events of this process, and builds the log from them at any time."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from rocsolid.errors import UsageError
from rocsolid.model.compile_event import CompileEvent, CompileStarted, GraphTraced
from rocsolid.model.compile_log import CompiledGraph, CompileLog, GraphBreak
from rocsolid.observe.break_message import display_name
from rocsolid.observe.build_log import build_log
from rocsolid.torchapi.dynamo.compile_events import active_compiles, subscribe
from rocsolid.torchapi.dynamo.compile_phase import phase_of


@dataclass(frozen=True, kw_only=True)
class RunningCompile:
    """A compile in progress, for a progress line."""

    graph: int  # the number that its graph will have
    function: str
    nodes: int  # 0 while it is being traced
    backward: bool
    seconds: float
    phase: str

    def __str__(self) -> str:
        nodes = f", {self.nodes} nodes" if self.nodes else ""
        direction = " backward" if self.backward else ""
        return f"graph {self.graph}{direction}, {self.function}{nodes}, {self.seconds:.0f} s: {self.phase}"


class CompileRecorder:
    """Records every compile of this process while its block runs: `with CompileRecorder() as recorder:`."""

    def __init__(self) -> None:
        self._events: list[CompileEvent] = []
        self._stop: Callable[[], None] | None = None
        self._started_s = self._ended_s = 0.0
        self._started_at = ""
        # The log that was built last, with the number of events and the end time it was built from.
        self._last_build: tuple[int, float, CompileLog | None] = (0, 0.0, None)

    def __enter__(self) -> "CompileRecorder":
        if self._stop is not None:
            msg = "this recorder is already recording; create another one with rs.record_compiles()"
            raise UsageError(msg)
        self._events = []
        self._started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._started_s, self._ended_s = time.time(), 0.0
        self._stop = subscribe(self._events.append)
        return self

    def __exit__(self, *failure: object) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None
        self._ended_s = time.time()

    def __repr__(self) -> str:
        return f"<CompileRecorder {len(self.graphs)} compiled graphs, {len(self.breaks)} graph breaks>"

    def _repr_html_(self) -> str:
        return self.log._repr_html_()

    @property
    def log(self) -> CompileLog:
        """Everything compiled so far."""
        events = list(self._events)
        event_count, ended_s, log = self._last_build
        if event_count == len(events) and ended_s == self._ended_s != 0 and log is not None:
            return log
        torch = getattr(sys.modules.get("torch"), "__version__", "")
        log = build_log(
            events,
            started_s=self._started_s,
            ended_s=self._ended_s or time.time(),
            started_at=self._started_at,
            torch=str(torch),
        )
        self._last_build = (len(events), self._ended_s, log)
        return log

    @property
    def graphs(self) -> tuple[CompiledGraph, ...]:
        """The graphs compiled so far, in the order in which their compiles started."""
        return self.log.graphs

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks so far."""
        return self.log.breaks

    def running(self) -> tuple[RunningCompile, ...]:
        """The compiles in progress."""
        events = list(self._events)
        started = {e.unit: e for e in events if isinstance(e, CompileStarted)}
        traced = {e.unit: e.nodes for e in events if isinstance(e, GraphTraced)}
        graph_numbers = {unit: number for number, unit in enumerate(traced, start=1)}
        return tuple(
            RunningCompile(
                graph=graph_numbers.get(work.unit, len(graph_numbers) + 1),
                function=display_name(started[work.unit].function) if work.unit in started else "a graph",
                nodes=traced.get(work.unit, 0),
                backward=work.backward,
                seconds=time.time() - work.since_s,
                phase=phase_of(work.thread_id),
            )
            for work in active_compiles()
        )
