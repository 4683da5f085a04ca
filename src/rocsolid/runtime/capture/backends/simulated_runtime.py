"""Simulates the capture rules of HIP or CUDA without a GPU: the calls that the runtime refuses during a capture are refused here.

While a function captured with `simulate=` runs, the streams and events of `torch.cuda` are replaced by fakes, because torch has
none without a GPU. Waiting for a fake stream or event does nothing, because work on the CPU is finished when the call returns. A
fake only stores whether it takes part in the capture. What a call does during a capture is looked up in the capture-rule table,
for the mode `thread_local`, which `rs.capture` uses.

Three words: a stream *joins* the capture when it waits for an event of the capture; the work on it is then captured too. It is
*joined back* when the capturing stream waits for it. Until then it is *unjoined*, and the capture cannot be ended.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import torch

from rocsolid.catalog.capture_rules import RELEASES_THAT_PIN_IN_RELAXED_MODE, find_capture_rule
from rocsolid.catalog.runtime_errors import runtime_error
from rocsolid.model.capture_report import CaptureReport
from rocsolid.model.capture_rule import Behavior, CaptureMode, CaptureRule, Outcome, Runtime
from rocsolid.model.code_line import CodeLine
from rocsolid.model.log import log as _log
from rocsolid.runtime.capture.backends.base import capture_lock
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.runtime.capture.captured import Captured, Inputs
from rocsolid.runtime.capture.diagnosis import refuse_operation
from rocsolid.torchapi.pretend.fake_device_info import active_pretended_chip
from rocsolid.torchapi.private_api import AttributePatch
from rocsolid.torchapi.user_frames import user_code_line

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
        self._capturing_thread = threading.get_ident()
        # Streams that joined the capture and are not joined back yet, each with the user's line that made it join.
        self.unjoined: dict[FakeStream, CodeLine | None] = {}

    def check_call(self, operation: str, rule_id: str, *, subject: str = "") -> Outcome:
        """Apply a capture rule to a call: allow it, warn, or raise CannotCapture.

        `subject` comes before the operation in the warning, where the operation itself is not what the graph lacks.
        """
        from_other_thread = threading.get_ident() != self._capturing_thread
        rule = find_capture_rule(f"thread-{rule_id}" if from_other_thread else rule_id)
        if self.recording is None or rule is None:
            return Outcome.UNKNOWN
        behavior = rule.behavior(self.runtime, _MODE)
        if behavior.fails:
            self._refuse(rule, behavior, operation, user_code_line())
        if behavior.outcome is Outcome.LEFT_OUT:
            notes = [f"why: {_call_and_situation(rule, self.runtime)} succeeds, but is silently left out"]
            why = f"is missing from the graph on {self.runtime.label}"
            refusal = refuse_operation(rule.cause, operation, why, rule.fix, user_code_line(), notes, subject=subject)
            _log.warning("%s", refusal.message)
        return behavior.outcome

    def _refuse(self, rule: CaptureRule, behavior: Behavior, operation: str, code: CodeLine | None) -> None:
        """Raise CannotCapture. The capture fails even when the function catches the exception."""
        error = runtime_error(behavior.error)
        error_name = f"{error.name(self.runtime)} ({error.number})" if error else "an error"
        if behavior.outcome is Outcome.FAILS_AT_END:  # the only such rule is the one for an unjoined stream
            joined = f"a second stream joined the capture with {rule.name(self.runtime)} and was not joined back"
            note = f"why: {joined}, so ending the capture fails: {error_name}"
        else:
            note = f"why: {_call_and_situation(rule, self.runtime)} fails with {error_name}"
        why = f"cannot be captured on {self.runtime.label}"
        refusal = refuse_operation(rule.cause, operation, why, rule.fix, code, [note])
        raise self.recording.refuse(refusal) if self.recording is not None else refusal

    @contextmanager
    def capturing(self, recording: _Recording) -> Iterator[None]:
        """Treat calls inside the block as calls during a capture, on a new current stream."""
        previous_stream, capture_stream = self.current_stream, FakeStream()
        capture_stream.recording = recording
        self.current_stream, self.recording, self.unjoined = capture_stream, recording, {}
        try:
            yield
        finally:
            self.current_stream, self.recording = previous_stream, None

    def end_capture(self) -> None:
        """Raise CannotCapture when a stream joined the capture and was not joined back."""
        rule = find_capture_rule("fork-unjoined")
        if rule is None or not self.unjoined:
            return
        behavior = rule.behavior(self.runtime, _MODE)
        if behavior.fails:
            self._refuse(rule, behavior, "torch.cuda.Stream.wait_stream", next(iter(self.unjoined.values())))


def _call_and_situation(rule: CaptureRule, runtime: Runtime) -> str:
    return f"{rule.name(runtime)} {rule.situation}".rstrip()


_active: list[SimulatedRuntime] = []  # the innermost last; changed only while `capture_lock` is held


def active_runtime() -> SimulatedRuntime | None:
    """Return the runtime that is being simulated now; None outside a simulation."""
    return _active[-1] if _active else None


class FakeStream:
    """Replaces `torch.cuda.Stream`."""

    def __init__(self, *_: object, **__: object) -> None:
        self.recording: object = None  # the capture that the stream takes part in
        self._previous_streams: list[FakeStream] = []  # current before each `with` block of this stream

    def wait_event(self, event: "FakeEvent") -> None:
        """Let this stream join the capture, join the event's stream back, or apply the rule for an event from outside."""
        runtime = active_runtime()
        if runtime is None or runtime.recording is None or event.stream is None:
            return
        event_is_captured = event.recording is runtime.recording
        if self.recording is not runtime.recording:
            if event_is_captured:  # this stream joins the capture
                self.recording = runtime.recording
                runtime.unjoined[self] = user_code_line()
        elif event_is_captured:  # the event's stream is joined back
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
        """Return True: all work is finished."""
        self._check("torch.cuda.Stream.query", "stream-query")
        return True

    def synchronize(self) -> None:
        """Return immediately: there is nothing to wait for."""
        self._check("torch.cuda.Stream.synchronize", "stream-synchronize")

    def _check(self, operation: str, rule_id: str) -> None:
        if runtime := active_runtime():
            is_capturing = runtime.recording is not None and self.recording is runtime.recording
            runtime.check_call(operation, rule_id if is_capturing else f"{rule_id}-other")

    def __enter__(self) -> "FakeStream":
        if runtime := active_runtime():
            self._previous_streams.append(runtime.current_stream)
            runtime.current_stream = self
        return self

    def __exit__(self, *_: object) -> None:
        if (runtime := active_runtime()) and self._previous_streams:
            runtime.current_stream = self._previous_streams.pop()


class FakeEvent:
    """Replaces `torch.cuda.Event`."""

    def __init__(self, *_: object, **__: object) -> None:
        self.stream: FakeStream | None = None  # the stream that it was recorded on; None before that
        self.recording: object = None  # the capture that it was recorded in

    def record(self, stream: FakeStream | None = None) -> None:
        """Store the stream, and the capture that the stream takes part in."""
        self.stream = stream or _current_stream()
        self.recording = self.stream.recording

    def wait(self, stream: FakeStream | None = None) -> None:
        """Make a stream wait for the event."""
        (stream or _current_stream()).wait_event(self)

    def query(self) -> bool:
        """Return True: all work is finished."""
        self._check("torch.cuda.Event.query", "event-query")
        return True

    def synchronize(self) -> None:
        """Return immediately: there is nothing to wait for."""
        self._check("torch.cuda.Event.synchronize", "event-synchronize")

    def elapsed_time(self, end: "FakeEvent") -> float:
        """Return 0. Both events are queried first, as torch does."""
        self.query()
        end.query()
        return 0.0

    def _check(self, operation: str, rule_id: str) -> None:
        runtime = active_runtime()
        if runtime and self.stream is not None:  # torch does not call the runtime for an event that was never recorded
            captured = runtime.recording is not None and self.recording is runtime.recording
            runtime.check_call(operation, f"{rule_id}-{'captured' if captured else 'old'}")


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
    if runtime and not RELEASES_THAT_PIN_IN_RELAXED_MODE.holds(torch.__version__):
        runtime.check_call("torch.Tensor.pin_memory", "host-malloc")
    return tensor.clone()


@contextmanager
def _stream(stream: FakeStream | None) -> Iterator[None]:
    """Replace `torch.cuda.stream`: work on a stream that did not join the capture is left out of the graph."""
    runtime = active_runtime()
    if runtime is None or stream is None:
        yield
        return
    recording = runtime.recording
    first_step = len(recording.steps) if recording else 0
    with stream:
        yield
    if recording is not None and stream.recording is not recording and len(recording.steps) > first_step:
        rule_id = "launch-default-stream" if stream is runtime.default_stream else "launch-other-stream"
        if runtime.check_call("torch.cuda.stream", rule_id, subject="work inside ") is Outcome.LEFT_OUT:
            del recording.steps[first_step:]  # as in a GPU graph, so that verification fails as it would there


_FAKES = (
    (torch.cuda, "Stream", FakeStream),
    (torch.cuda, "Event", FakeEvent),
    (torch.cuda, "stream", _stream),
    (torch.cuda, "current_stream", _current_stream),
    (torch.cuda, "default_stream", _default_stream),
    (torch.cuda, "synchronize", _synchronize),
    (torch.accelerator, "synchronize", _synchronize),
    (torch.Tensor, "pin_memory", _pin_memory),
)


def _use_fake(fake: object, _original: object) -> object:
    return fake


@contextmanager
def simulating(runtime: Runtime) -> Iterator[None]:
    """Replace streams and events inside the block. Only one simulated function runs at a time in the process."""
    with capture_lock:
        simulated = SimulatedRuntime(runtime)
        patches = [AttributePatch(owner, name, partial(_use_fake, fake)) for owner, name, fake in _FAKES]
        _active.append(simulated)
        try:
            yield
        finally:
            _active.remove(simulated)
            for patch in reversed(patches):
                patch.undo()


class SimulatedCaptured(Captured):
    """What `rs.capture(..., simulate=...)` returns."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with the capture rules of the simulated runtime."""
        with simulating(self._runtime):
            return super().__call__(*args, **kwargs)

    def warm(self, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> None:
        """Capture these calls ahead of time."""
        with simulating(self._runtime):
            super().warm(calls)

    def inputs(self, *args: Any, **kwargs: Any) -> Inputs:
        """Return the static input buffers of the graph for such a call."""
        with simulating(self._runtime):
            return super().inputs(*args, **kwargs)

    def report(self) -> CaptureReport:
        """Return the report; its `backend` names the simulated runtime."""
        report = super().report()
        label = self._runtime.label
        if (chip := active_pretended_chip()) and not label.endswith(f" {chip.release}"):
            label += f", whose capture rules are the nearest known to those of {chip.release}"
        return replace(report, backend=f"{report.backend}, simulates {label}")

    @property
    def _runtime(self) -> Runtime:
        return Runtime(self._options.simulate)
