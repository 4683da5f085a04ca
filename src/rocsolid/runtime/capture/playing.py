"""Plays a runtime's rules of capture where there is no device: what HIP or CUDA would refuse, the tape refuses.

While a played function runs, streams and events of `torch.cuda` are stood in for, since without a device torch has none. They
order nothing, for on the CPU a call is over when it returns; they only know whether they take part in the capture. What a call
meets in a capture is looked up in the capture-rule table, in thread_local mode, in which `rs.capture` captures.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch

from rocsolid.catalog.capture_rules import PINS_IN_RELAXED_MODE, find_rule
from rocsolid.catalog.runtime_errors import runtime_error
from rocsolid.model.capture_rule import Answer, CaptureMode, CaptureRule, Outcome, Runtime
from rocsolid.runtime.capture.backend import capture_lock
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.torchapi.patch import AttributePatch
from rocsolid.torchapi.user_frames import user_location

_log = logging.getLogger("rocsolid")
_MODE = CaptureMode.THREAD_LOCAL


class _Tape(Protocol):
    """What records."""

    steps: list[Any]
    refused: CannotCapture | None


class _Play:
    """A runtime that is being played, and the capture that is under way in it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.default = PlayedStream()
        self.current = self.default
        self.tape: _Tape | None = None
        self.thread = threading.get_ident()
        self.unjoined: dict[PlayedStream, str] = {}  # streams that entered the capture, and where

    def meet(self, operation: str, case: str) -> Outcome:
        """Let a call pass during a capture, or refuse it, as the runtime would."""
        rule = find_rule(case if threading.get_ident() == self.thread else f"thread-{case}")
        if self.tape is None or rule is None:
            return Outcome.UNKNOWN
        answer = rule.answer(self.runtime, _MODE)
        if answer.fails:
            self.refuse(rule, answer, operation, user_location())
        if answer.outcome is Outcome.LEFT_OUT:
            called = _called(rule, self.runtime)
            _log.warning(
                "%s at %s: in a capture %s lets %s pass, and the graph does not hold it; %s",
                *(operation, user_location(), self.runtime.label, called, rule.fix),
            )
        return answer.outcome

    def refuse(self, rule: CaptureRule, answer: Answer, operation: str, place: str) -> None:
        """The capture is lost, whether the function minds the error or not."""
        error = runtime_error(answer.error)
        number = f" ({error.name(self.runtime)}, {error.number})" if error else ""
        where = f" at {place}" if place else ""
        verb = "cannot end after" if answer.outcome is Outcome.UNENDED else "refuses"
        called = _called(rule, self.runtime)
        detail = (
            f"{operation}{where}: a capture on {self.runtime.label} {verb} {called}{number}, and is lost; {rule.fix}"
        )
        refused = CannotCapture(rule.cause, detail, place)
        if self.tape is not None:
            self.tape.refused = self.tape.refused or refused
        raise refused


def _called(rule: CaptureRule, runtime: Runtime) -> str:
    return f"{rule.name(runtime)} {rule.situation}".rstrip()


_plays: list[_Play] = []  # the innermost last; changed under the lock of captures alone


class PlayedStream:
    """Stands for `torch.cuda.Stream`."""

    def __init__(self, *_: object, **__: object) -> None:
        self.capture: object = None  # the tape that it takes part in
        self._outer: list[PlayedStream] = []

    def wait_event(self, event: "PlayedEvent") -> None:
        """Enter a capture, leave it to another stream, or reach outside it."""
        play = _playing()
        if play is None or play.tape is None or event.stream is None:
            return
        inside = event.capture is play.tape
        if self.capture is not play.tape:
            if inside:
                self.capture = play.tape
                play.unjoined[self] = user_location()
        elif inside:
            play.unjoined.pop(event.stream, None)
        else:
            play.meet("torch.cuda.Stream.wait_event", "wait-uncaptured-event")

    def wait_stream(self, stream: "PlayedStream") -> None:
        """Wait for all that a stream was given."""
        self.wait_event(stream.record_event())

    def record_event(self, event: "PlayedEvent | None" = None) -> "PlayedEvent":
        """Mark what the stream was given so far."""
        event = event or PlayedEvent()
        event.record(self)
        return event

    def query(self) -> bool:
        """All is done."""
        self._ask("torch.cuda.Stream.query", "stream-query")
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""
        self._ask("torch.cuda.Stream.synchronize", "stream-synchronize")

    def _ask(self, operation: str, case: str) -> None:
        if play := _playing():
            captures = play.tape is not None and self.capture is play.tape
            play.meet(operation, case if captures else f"{case}-other")

    def __enter__(self) -> "PlayedStream":
        if play := _playing():
            self._outer.append(play.current)
            play.current = self
        return self

    def __exit__(self, *_: object) -> None:
        if (play := _playing()) and self._outer:
            play.current = self._outer.pop()


class PlayedEvent:
    """Stands for `torch.cuda.Event`."""

    def __init__(self, *_: object, **__: object) -> None:
        self.stream: PlayedStream | None = None
        self.capture: object = None

    def record(self, stream: PlayedStream | None = None) -> None:
        """Belong to the capture of the stream, or to none."""
        self.stream = stream or _current_stream()
        self.capture = self.stream.capture

    def wait(self, stream: PlayedStream | None = None) -> None:
        """Let a stream wait."""
        (stream or _current_stream()).wait_event(self)

    def query(self) -> bool:
        """All is done."""
        self._ask("torch.cuda.Event.query", "event-query")
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""
        self._ask("torch.cuda.Event.synchronize", "event-synchronize")

    def elapsed_time(self, end: "PlayedEvent") -> float:
        """No time passes here; torch queries both events first."""
        self.query()
        end.query()
        return 0.0

    def _ask(self, operation: str, case: str) -> None:
        play = _playing()
        if play and self.stream is not None:  # torch asks the runtime for no event that was never recorded
            captured = play.tape is not None and self.capture is play.tape
            play.meet(operation, f"{case}-{'captured' if captured else 'old'}")


def _playing() -> _Play | None:
    return _plays[-1] if _plays else None


def _current_stream(*_: object) -> PlayedStream:
    play = _playing()
    return play.current if play else PlayedStream()


def _default_stream(*_: object) -> PlayedStream:
    play = _playing()
    return play.default if play else PlayedStream()


def _synchronize(*_: object, **__: object) -> None:
    if play := _playing():
        play.meet("torch.cuda.synchronize", "device-synchronize")


def _pin_memory(tensor: Any, *_: object) -> Any:
    play = _playing()
    if play and not PINS_IN_RELAXED_MODE.holds(torch.__version__):
        play.meet("torch.Tensor.pin_memory", "host-malloc")
    return tensor.clone()


@contextmanager
def _stream(stream: PlayedStream | None) -> Iterator[None]:
    """Work on a stream; what runs there without having entered the capture is not in the graph."""
    play = _playing()
    if play is None or stream is None:
        yield
        return
    tape = play.tape
    before = len(tape.steps) if tape else 0
    with stream:
        yield
    if tape is not None and stream.capture is not tape and len(tape.steps) > before:
        case = "launch-default-stream" if stream is play.default else "launch-other-stream"
        if play.meet("torch.cuda.stream", case) is Outcome.LEFT_OUT:
            del tape.steps[before:]  # so the comparison with eager finds out what is missing


_STAND_INS = (
    (torch.cuda, "Stream", PlayedStream),
    (torch.cuda, "Event", PlayedEvent),
    (torch.cuda, "stream", _stream),
    (torch.cuda, "current_stream", _current_stream),
    (torch.cuda, "default_stream", _default_stream),
    (torch.cuda, "synchronize", _synchronize),
    (torch.accelerator, "synchronize", _synchronize),
    (torch.Tensor, "pin_memory", _pin_memory),
)


def _instead(ours: object, _: object) -> object:
    return ours


@contextmanager
def playing(runtime: Runtime) -> Iterator[None]:
    """Stand in for streams and events; one played function at a time in the process."""
    with capture_lock:
        play = _Play(runtime)
        swaps = [AttributePatch(owner, name, partial(_instead, ours)) for owner, name, ours in _STAND_INS]
        _plays.append(play)
        try:
            yield
        finally:
            _plays.remove(play)
            for swap in reversed(swaps):
                swap.undo()


@contextmanager
def listening(tape: _Tape) -> Iterator[None]:
    """What is called inside happens in a capture, if a runtime is being played."""
    play = _playing()
    if play is None:
        yield
        return
    before, stream = play.current, PlayedStream()
    stream.capture = tape
    play.current, play.tape, play.unjoined = stream, tape, {}
    try:
        yield
    finally:
        play.current, play.tape = before, None


def end_capture() -> None:
    """Refuse a capture whose streams have not all come back, if a runtime is being played."""
    play = _playing()
    rule = find_rule("fork-unjoined")
    if play is None or rule is None or not play.unjoined:
        return
    answer = rule.answer(play.runtime, _MODE)
    if answer.fails:
        play.refuse(rule, answer, "torch.cuda.Stream.wait_stream", next(iter(play.unjoined.values())))
