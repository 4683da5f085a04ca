"""What a user may ask of a captured function besides calling it."""

import copy
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from rocsolid.errors import CaptureError
from rocsolid.model.capture_report import CaptureReport, Forecast
from rocsolid.runtime.capture.answering import Answering
from rocsolid.runtime.capture.backend import capture_lock
from rocsolid.runtime.capture.call import Call, CannotCapture
from rocsolid.runtime.capture.inputs import PaddedBuffer
from rocsolid.runtime.capture.state import RandomState, Stage, TensorState, kept, worth_keeping
from rocsolid.runtime.capture.surroundings import look_around
from rocsolid.runtime.signature import differences, nearest


class Inputs(tuple[Any, ...]):  # noqa: SLOT001 - it has an attribute
    """A call's positional arguments with the graph's own buffers in place of the tensors; `kwargs` holds the named ones."""

    kwargs: dict[str, Any]


class Captured(Answering):
    """What `rs.capture` returns. Called like the function it was made from."""

    def warm(self, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> None:
        """Capture these calls ahead, the largest first. Tensors, random numbers and Python values stay as they are."""
        function = self._function()
        taken = [self._take(function, args, kwargs) for args, kwargs in calls]
        sight = look_around(function)
        stage = Stage(
            tensors=TensorState(worth_keeping(sight, [])),
            random=RandomState(
                next((call.device for call in taken if call.device.type != "cpu"), torch.device("cpu")),
                (*self._options.generators, *sight.generators),
            ),
            inputs=TensorState([leaf.value for call in taken for leaf in call.tensors]),
        )
        with kept(sight, stage):
            for call in sorted(taken, key=_size, reverse=True):
                if self._store.find(call.key) is None and self._books.refusal(call) is None:
                    self._capture(function, call)

    def freeze(self) -> None:
        """From now on replay or run eagerly, and never capture."""
        self._frozen = True

    def inputs(self, *args: Any, **kwargs: Any) -> Inputs:
        """The graph's own buffers for a call like this, to be written into; passed back to the function they are not copied."""
        function = self._function()
        call = self._take(function, args, kwargs)
        if self._store.find(call.key) is None:
            self._without_graph(function, call)
        entry = self._store.find(call.key)
        if entry is None:
            refused = self._books.refusal(call)
            msg = f"there is no graph for this call: {refused.detail if refused else 'it runs eagerly'}"
            raise CaptureError(msg)
        self._lead(call, entry)
        tensors = [
            buffer.head(tuple(x.length for x in call.lengths if x.tensor == number))
            if isinstance(buffer, PaddedBuffer)
            else buffer.tensor
            for number, buffer in enumerate(entry.buffers)
        ]
        given, named = call.rebuilt(tensors)
        handed = Inputs(given)
        handed.kwargs = named
        return handed

    def invalidate(self, why: str = "asked for") -> None:
        """Throw all graphs away; the next call captures anew."""
        with capture_lock:
            entries = self._store.clear()
            self._books.forget_refusals()
            self._modules = None
            if entries:
                self._books.threw_away(why)
            self._let_go(entries)

    def explain(self, *args: Any, **kwargs: Any) -> Forecast:
        """What a call like this would do, and why; nothing is run."""
        try:
            call = self._take(self._function(), args, kwargs)
        except CannotCapture as refusal:
            return Forecast(action="eager", why=refusal.detail)
        if self._store.find(call.key) is not None:
            return Forecast(action="replay", why="a graph was captured for this call")
        refused = self._books.refusal(call)
        if refused is not None:
            return Forecast(action="eager", why=refused.detail)
        known = [entry.signature for entry in self._store]
        unlike = tuple(differences(nearest(known, call.signature), call.signature)) if known else ()
        if self._frozen or self._closed:
            why = "no graph was captured for it, and the function is " + ("closed" if self._closed else "frozen")
            return Forecast(action="eager", why=why, differences=unlike)
        return Forecast(action="capture", why="no graph answers it yet", differences=unlike)

    def report(self) -> CaptureReport:
        """Graphs, counters, refusals; prints well, and goes to JSON."""
        return self._books.report(self._store, self._backend_name, frozen=self._frozen)

    def debug_dump(self, path: str) -> None:
        """Write each graph to a file: `path.0` and so on. On a device it must have been captured with `keep_graph=True`."""
        for number, entry in enumerate(self._store):
            entry.dump(f"{path}.{number}")

    def close(self) -> None:
        """Give every graph back. Later calls run eagerly. Tensors handed out stay readable."""
        self.invalidate("closed")
        self._closed = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(self._function(), name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a decorator of a method: each instance has graphs of its own."""
        if instance is None:
            return self
        made = type(self)(types.MethodType(self._function(), instance), self._options, self._backends, self._care)
        vars(instance)[self.__name__] = made  # found there first from now on
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> "Captured":
        return type(self)(copy.deepcopy(self._function(), memo), self._options, self._backends, self._care)

    def __reduce__(self) -> Any:
        return type(self), (self._function(), self._options, self._backends, self._care)

    def __del__(self) -> None:
        if not sys.is_finalizing() and vars(self).get("_store"):
            self.close()


def _size(call: Call) -> int:
    return sum(torch.Size(spec.shape).numel() * int(spec.dtype.itemsize) for spec in call.specs)
