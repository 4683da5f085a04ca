"""Writes a profiler trace of each capture and marks its replays: `rocsolid trace` then knows the operator of every kernel.

A trace of replays contains kernels only. The trace of the capture contains the launch of each kernel inside its operator, with shapes,
modules and Python lines.
"""

import itertools
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from rocsolid.model.log import log as _log
from rocsolid.runtime.capture.backends.base import Graph, Session
from rocsolid.torchapi.graphs.graph_marks import mark_text, profiler_check

_count: Final = itertools.count()


def annotated(
    session: Session, folder: str, function: Callable[..., Any], written: list[Path], *, uses_gpu: bool
) -> Session:
    """Return a session that writes a trace of each capture to `folder`; the same session where there is no folder.

    The files are added to `written`, so that the caller can remove them if the capture is refused later.
    """
    running = profiler_check() if folder else None
    if running is None:
        return session
    name = getattr(function, "__name__", type(function).__name__)
    return _AnnotatedSession(session, Path(folder), name, running, written, uses_gpu=uses_gpu)


class _AnnotatedGraph:
    """A graph whose replays are marked while a profiler is running."""

    def __init__(self, graph: Graph, mark: str, profiler_running: Callable[[], bool]) -> None:
        self._graph = graph
        self._mark = mark
        self._profiler_running = profiler_running
        self.nodes = graph.nodes
        self.bytes = graph.bytes
        self.close = graph.close
        self.dump = graph.dump

    def replay(self) -> None:
        """Run the recorded work again."""
        if not self._profiler_running():
            self._graph.replay()
            return
        with record_function(self._mark):
            self._graph.replay()


class _AnnotatedSession:
    """A capture that a profiler records. Where a profiler of the user is running, its trace contains the capture."""

    def __init__(
        self,
        session: Session,
        folder: Path,
        name: str,
        profiler_running: Callable[[], bool],
        written: list[Path],
        *,
        uses_gpu: bool,
    ) -> None:
        self._session = session
        self._written = written
        self.executes = session.executes
        self._folder = folder
        self._name = "".join(letter if letter.isalnum() or letter in "_." else "_" for letter in name)
        self._profiler_running = profiler_running
        self._activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if uses_gpu else [])]
        self._profiler: Any = None
        self._scope = ExitStack()
        self._mark = ""

    def begin(self) -> None:
        """Start the profiler, and then the capture: starting it during a capture could make the capture fail."""
        number = (os.getpid() << 20) + next(_count)
        self._mark = mark_text(number)
        if not self._profiler_running():
            self._profiler = profile(activities=self._activities, record_shapes=True, with_stack=True, acc_events=True)
            self._profiler.start()
        self._scope.enter_context(record_function(self._mark))
        self._session.begin()

    def end(self) -> Graph:
        """Return the graph, and write the trace of its capture."""
        graph = self._session.end()
        recorded = self._stop()
        if recorded is not None and graph.nodes != 0:
            file = self._folder / f"{self._name}-{self._mark.rpartition(' ')[2]}.json.gz"
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._written.append(file)
                recorded.export_chrome_trace(str(file))
            except (OSError, RuntimeError) as error:
                _log.warning("%s: the trace of a capture was not written: %s", self._name, error)
        return _AnnotatedGraph(graph, self._mark, self._profiler_running)

    def abort(self) -> None:
        """Clean up after a failed capture."""
        self._session.abort()
        self._stop()

    def _stop(self) -> Any:
        self._scope.close()
        recorded, self._profiler = self._profiler, None
        if recorded is None:
            return None
        if ProfilerActivity.CUDA in self._activities:
            torch.cuda.synchronize()
        try:
            recorded.stop()
        except Exception as error:  # noqa: BLE001 - such as names of frames that torch 2.13 cannot decode; the call must go on
            _log.warning("%s: the trace of a capture was not written: %s", self._name, error)
            return None
        return recorded
