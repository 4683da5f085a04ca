"""Simulates the capture rules of HIP or CUDA without a GPU: what that runtime refuses during a capture, we refuse.

While a function captured with `simulate=` runs, the streams and events of `torch.cuda` are replaced by fakes, because torch has
none without a GPU. They order nothing, since on the CPU a call has finished when it returns. They only know whether they take
part in the capture. What a call does during a capture is looked up in the capture-rule table, for the mode `thread_local`, which
`rs.capture` uses.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import torch

from rocsolid.catalog.capture_rules import PINS_IN_RELAXED_MODE, find_rule
from rocsolid.catalog.runtime_errors import runtime_error
from rocsolid.model.capture_report import CaptureReport
from rocsolid.model.capture_rule import Behavior, CaptureMode, CaptureRule, Outcome, Runtime
from rocsolid.model.code_line import CodeLine
from rocsolid.runtime.capture.backends.base import capture_lock
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.runtime.capture.captured import Captured, Inputs
from rocsolid.runtime.capture.diagnosis import refuse_operation
from rocsolid.torchapi.patch import AttributePatch
from rocsolid.torchapi.user_frames import user_code_line

_log = logging.getLogger("rocsolid")
_MODE = CaptureMode.THREAD_LOCAL


class _Recording(Protocol):
    """The part of a recording that is used here."""

    steps: list[Any]

    def refuse(self, refusal: CannotCapture) -> CannotCapture: ...


class SimulatedRuntime:
    """One simulated runtime, and the capture that is in progress in it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.default_stream = FakeStream()
        self.current_stream = self.default_stream
        self.recording: _Recording | None = None
        self._thread = threading.get_ident()
        self.unjoined: dict[FakeStream, CodeLine | None] = {}  # streams that joined the capture, and where

    def check_call(self, operation: str, case: str) -> Outcome:
        """Apply the capture rule of a call: allow it, warn, or raise CannotCapture."""
        rule = find_rule(case if threading.get_ident() == self._thread else f"thread-{case}")
        if self.recording is None or rule is None:
            return Outcome.UNKNOWN
        behavior = rule.behavior(self.runtime, _MODE)
        if behavior.fails:
            self._refuse(rule, behavior, operation, user_code_line())
        if behavior.outcome is Outcome.LEFT_OUT:
            code = user_code_line()
            notes = [f"why: {_described(rule, self.runtime)} succeeds, but is silently left out"]
            why = f"is missing from the graph on {self.runtime.label}"
            _log.warning("%s", refuse_operation(rule.cause, operation, why, rule.fix, code, notes).message)
        return behavior.outcome

    def _refuse(self, rule: CaptureRule, behavior: Behavior, operation: str, code: CodeLine | None) -> None:
        """Fail the capture, even when the function catches the exception."""
        error = runtime_error(behavior.error)
        number = f"{error.name(self.runtime)} ({error.number})" if error else "an error"
        at_end = "the end of the capture fails after " if behavior.outcome is Outcome.FAILS_AT_END else ""
        notes = [f"why: {at_end}{_described(rule, self.runtime)}{':' if at_end else ' fails with'} {number}"]
        why = f"cannot be captured on {self.runtime.label}"
        refusal = refuse_operation(rule.cause, operation, why, rule.fix, code, notes)
        raise self.recording.refuse(refusal) if self.recording is not None else refusal

    @contextmanager
    def capturing(self, recording: _Recording) -> Iterator[None]:
        """Calls inside the block happen during a capture."""
        before, stream = self.current_stream, FakeStream()
        stream.recording = recording
        self.current_stream, self.recording, self.unjoined = stream, recording, {}
        try:
            yield
        finally:
            self.current_stream, self.recording = before, None

    def end_capture(self) -> None:
        """Raise CannotCapture when a stream joined the capture and was not joined back."""
        rule = find_rule("fork-unjoined")
        if rule is None or not self.unjoined:
            return
        behavior = rule.behavior(self.runtime, _MODE)
        if behavior.fails:
            self._refuse(rule, behavior, "torch.cuda.Stream.wait_stream", next(iter(self.unjoined.values())))


def _described(rule: CaptureRule, runtime: Runtime) -> str:
    return f"{rule.name(runtime)} {rule.situation}".rstrip()


_active: list[SimulatedRuntime] = []  # the innermost last; changed only while `capture_lock` is held


def active_runtime() -> SimulatedRuntime | None:
    """The runtime that is being simulated now."""
    return _active[-1] if _active else None


class FakeStream:
    """Replaces `torch.cuda.Stream`."""

    def __init__(self, *_: object, **__: object) -> None:
        self.recording: object = None  # the capture that it takes part in
        self._outer: list[FakeStream] = []

    def wait_event(self, event: "FakeEvent") -> None:
        """Join the capture, join a stream back, or wait for work outside the capture."""
        runtime = active_runtime()
        if runtime is None or runtime.recording is None or event.stream is None:
            return
        inside = event.recording is runtime.recording
        if self.recording is not runtime.recording:
            if inside:
                self.recording = runtime.recording
                runtime.unjoined[self] = user_code_line()
        elif inside:
            runtime.unjoined.pop(event.stream, None)
        else:
            runtime.check_call("torch.cuda.Stream.wait_event", "wait-uncaptured-event")

    def wait_stream(self, stream: "FakeStream") -> None:
        """Wait for all work of another stream."""
        self.wait_event(stream.record_event())

    def record_event(self, event: "FakeEvent | None" = None) -> "FakeEvent":
        """Record an event after the work of this stream."""
        event = event or FakeEvent()
        event.record(self)
        return event

    def query(self) -> bool:
        """True: all work is finished."""
        self._check("torch.cuda.Stream.query", "stream-query")
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""
        self._check("torch.cuda.Stream.synchronize", "stream-synchronize")

    def _check(self, operation: str, case: str) -> None:
        if runtime := active_runtime():
            captures = runtime.recording is not None and self.recording is runtime.recording
            runtime.check_call(operation, case if captures else f"{case}-other")

    def __enter__(self) -> "FakeStream":
        if runtime := active_runtime():
            self._outer.append(runtime.current_stream)
            runtime.current_stream = self
        return self

    def __exit__(self, *_: object) -> None:
        if (runtime := active_runtime()) and self._outer:
            runtime.current_stream = self._outer.pop()


class FakeEvent:
    """Replaces `torch.cuda.Event`."""

    def __init__(self, *_: object, **__: object) -> None:
        self.stream: FakeStream | None = None
        self.recording: object = None

    def record(self, stream: FakeStream | None = None) -> None:
        """Take part in the capture of the stream, if it has one."""
        self.stream = stream or _current_stream()
        self.recording = self.stream.recording

    def wait(self, stream: FakeStream | None = None) -> None:
        """Make a stream wait for the event."""
        (stream or _current_stream()).wait_event(self)

    def query(self) -> bool:
        """True: all work is finished."""
        self._check("torch.cuda.Event.query", "event-query")
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""
        self._check("torch.cuda.Event.synchronize", "event-synchronize")

    def elapsed_time(self, end: "FakeEvent") -> float:
        """Always 0; torch queries both events first, and so do we."""
        self.query()
        end.query()
        return 0.0

    def _check(self, operation: str, case: str) -> None:
        runtime = active_runtime()
        if runtime and self.stream is not None:  # torch does not call the runtime for an event that was never recorded
            captured = runtime.recording is not None and self.recording is runtime.recording
            runtime.check_call(operation, f"{case}-{'captured' if captured else 'old'}")


def _current_stream(*_: object) -> FakeStream:
    runtime = active_runtime()
    return runtime.current_stream if runtime else FakeStream()


def _default_stream(*_: object) -> FakeStream:
    runtime = active_runtime()
    return runtime.default_stream if runtime else FakeStream()


def _synchronize(*_: object, **__: object) -> None:
    if runtime := active_runtime():
        runtime.check_call("torch.cuda.synchronize", "device-synchronize")


def _pin_memory(tensor: Any, *_: object) -> Any:
    runtime = active_runtime()
    if runtime and not PINS_IN_RELAXED_MODE.holds(torch.__version__):
        runtime.check_call("torch.Tensor.pin_memory", "host-malloc")
    return tensor.clone()


@contextmanager
def _stream(stream: FakeStream | None) -> Iterator[None]:
    """`with torch.cuda.stream(...)`: work on a stream that did not join the capture is not in the graph."""
    runtime = active_runtime()
    if runtime is None or stream is None:
        yield
        return
    recording = runtime.recording
    before = len(recording.steps) if recording else 0
    with stream:
        yield
    if recording is not None and stream.recording is not recording and len(recording.steps) > before:
        case = "launch-default-stream" if stream is runtime.default_stream else "launch-other-stream"
        if runtime.check_call("torch.cuda.stream", case) is Outcome.LEFT_OUT:
            del recording.steps[before:]  # so that verification finds what is missing


_REPLACED = (
    (torch.cuda, "Stream", FakeStream),
    (torch.cuda, "Event", FakeEvent),
    (torch.cuda, "stream", _stream),
    (torch.cuda, "current_stream", _current_stream),
    (torch.cuda, "default_stream", _default_stream),
    (torch.cuda, "synchronize", _synchronize),
    (torch.accelerator, "synchronize", _synchronize),
    (torch.Tensor, "pin_memory", _pin_memory),
)


def _replacement(ours: object, _: object) -> object:
    return ours


@contextmanager
def simulating(runtime: Runtime) -> Iterator[None]:
    """Replace streams and events inside the block; one simulated function at a time in the process."""
    with capture_lock:
        simulated = SimulatedRuntime(runtime)
        swaps = [AttributePatch(owner, name, partial(_replacement, ours)) for owner, name, ours in _REPLACED]
        _active.append(simulated)
        try:
            yield
        finally:
            _active.remove(simulated)
            for swap in reversed(swaps):
                swap.undo()


class SimulatedCaptured(Captured):
    """What `rs.capture(..., simulate=...)` returns."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as on that runtime."""
        with simulating(self._runtime):
            return super().__call__(*args, **kwargs)

    def warm(self, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> None:
        """Capture these calls ahead of time."""
        with simulating(self._runtime):
            super().warm(calls)

    def inputs(self, *args: Any, **kwargs: Any) -> Inputs:
        """The static input buffers of the graph for such a call."""
        with simulating(self._runtime):
            return super().inputs(*args, **kwargs)

    def report(self) -> CaptureReport:
        """The report, with the simulated runtime named in `backend`."""
        report = super().report()
        return replace(report, backend=f"{report.backend}, simulates {self._runtime.label}")

    @property
    def _runtime(self) -> Runtime:
        return Runtime(self._options.simulate)
