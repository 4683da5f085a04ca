"""Keeps what is heard of compiles, and makes the log from it at any moment."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from rocsolid.errors import UsageError
from rocsolid.model.compile_event import Began, Event, Traced
from rocsolid.model.compile_log import CompiledGraph, CompileLog, GraphBreak
from rocsolid.observe.build_log import assemble, shown_name
from rocsolid.torchapi.dynamo.compile_events import active_compiles, subscribe
from rocsolid.torchapi.dynamo.compile_phase import phase_of


@dataclass(frozen=True, kw_only=True)
class Compiling:
    """A compile that is going on, for somebody who waits."""

    graph: int  # which it will be
    function: str
    nodes: int  # 0 while it is being traced
    backward: bool
    seconds: float
    doing: str

    def __str__(self) -> str:
        nodes = f", {self.nodes} nodes" if self.nodes else ""
        way = " backward" if self.backward else ""
        return f"graph {self.graph}{way}, {self.function}{nodes}, {self.seconds:.0f} s: {self.doing}"


class CompileRecorder:
    """Hears every compile of this process while the block runs: `with CompileRecorder() as recorder:`."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._stop: Callable[[], None] | None = None
        self._started_s = self._ended_s = 0.0
        self._started_at = ""
        self._made: tuple[int, float, CompileLog | None] = (0, 0.0, None)  # the last log, while nothing is added

    def __enter__(self) -> "CompileRecorder":
        if self._stop is not None:
            msg = "this recorder is recording already; take another for a block inside its block"
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

    @property
    def log(self) -> CompileLog:
        """Everything compiled so far."""
        events = list(self._events)
        known, ended_s, log = self._made
        if known == len(events) and ended_s == self._ended_s != 0 and log is not None:
            return log
        torch = getattr(sys.modules.get("torch"), "__version__", "")
        log = assemble(
            events,
            started_s=self._started_s,
            ended_s=self._ended_s or time.time(),
            started_at=self._started_at,
            torch=str(torch),
        )
        self._made = (len(events), self._ended_s, log)
        return log

    @property
    def graphs(self) -> tuple[CompiledGraph, ...]:
        """The graphs compiled so far, in the order in which they began."""
        return self.log.graphs

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks met so far."""
        return self.log.breaks

    def now(self) -> tuple[Compiling, ...]:
        """What is being compiled at this moment."""
        going_on = active_compiles()
        events = list(self._events)
        began = {e.unit: e for e in events if isinstance(e, Began)}
        traced = {e.unit: e.nodes for e in events if isinstance(e, Traced)}
        numbers = {unit: number for number, unit in enumerate(traced, start=1)}
        return tuple(
            Compiling(
                graph=numbers.get(work.unit, len(numbers) + 1),
                function=shown_name(began[work.unit].function) if work.unit in began else "a graph",
                nodes=traced.get(work.unit, 0),
                backward=work.backward,
                seconds=time.time() - work.since_s,
                doing=phase_of(work.thread_id),
            )
            for work in going_on
        )
