"""How a call is answered: by a replay where there is a graph, by a capture where there may be one, eagerly where there is none."""

import inspect
import logging
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any, Final

import torch

from rocsolid.errors import CaptureError
from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.backend import Backend, capture_lock
from rocsolid.runtime.capture.books import Books
from rocsolid.runtime.capture.call import Call, CannotCapture, Parameters, calling_signature, take_call
from rocsolid.runtime.capture.care import Care
from rocsolid.runtime.capture.checking import recheck, wrong_result
from rocsolid.runtime.capture.entry import DUE, FAILED, INSIDE, STALE, Entry
from rocsolid.runtime.capture.making import FirstRun, make
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.capture.outputs import copy_into
from rocsolid.runtime.capture.pieces import named_pieces
from rocsolid.runtime.capture.road import NO_LENGTHS, Road
from rocsolid.runtime.capture.situation import situation
from rocsolid.runtime.capture.store import Store
from rocsolid.runtime.capture.surroundings import look_around

_log = logging.getLogger("rocsolid")
_inference: Final = torch.is_inference_mode_enabled
_FEW: Final = 4

Function = Callable[..., Any]
Backends = Callable[[Call, Options, dict[object, Backend]], Backend | None]


class _Busy(threading.local):
    """Whether this thread is inside a capture: functions in it take part as themselves."""

    inside = False


_busy: Final = _Busy()


class Answering:
    """A function and its graphs."""

    __name__: str
    __qualname__: str
    __signature__: inspect.Signature

    def __init__(
        self,
        function: Function,
        options: Options,
        backends: Backends,
        care: Care = Care(),  # noqa: B008 - frozen
    ) -> None:
        named_pieces(function, options.pieces)  # a name that is wrong is told at once
        self.__rocsolid_function__: Function | None = function
        self._weakly: weakref.WeakMethod[Any] | None = None
        self._options = options
        self._backends = backends
        self._made: dict[object, Backend] = {}
        self._parameters = Parameters.of(function)
        self._roads: tuple[Road, ...] = ()
        self._store = Store(options.max_graphs, options.memory_budget_bytes)
        self._modules: list[weakref.ref[Any]] | None = None
        self._frozen = self._closed = False
        self._backend_name = options.backend
        self._takes_out = options.outputs == "out"
        self._care = care
        self._tried = care.trial is None
        _dress_as(self, function)
        self._books = Books(self.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call as the function would."""
        return self._answer_into(args, kwargs) if self._takes_out else self._answer(args, kwargs)

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The short way, for a call that looks like one before."""
        for road in self._roads:
            tensors = road.read(args, kwargs)
            if tensors is None:
                continue
            filled = all(map(is_, tensors, road.buffers))
            if not (filled or road.fits(*tensors)) or not road.in_state() or _inference() is not road.inference:
                continue
            if _busy.inside:
                break
            entry, lengths = road.entry, NO_LENGTHS
            if entry is None:
                entry, lengths = road.by_length(tensors)
                if entry is None:
                    break
            result = entry.run(tensors, lengths, filled=filled)
            if result is STALE or result is DUE or result is INSIDE or result is FAILED:
                return self._answer_otherwise(args, kwargs, entry, result)
            if entry is not self._store.newest:
                self._used_another(road, entry)
            return result
        return self._answer_slowly(args, kwargs)

    def _used_another(self, road: Road, entry: Entry) -> None:
        """Calls that change between graphs: the road taken comes first next time, and the graph is the last to be given up."""
        if not entry.closed:
            self._store.touch(entry)
        others = tuple(other for other in self._roads if other is not road)
        if len(others) < len(self._roads):  # another thread may have closed the road meanwhile
            self._roads = (road, *others)

    def _answer_into(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = kwargs.pop("out", None)
        if out is None:
            msg = "captured with outputs='out', a call needs out=: the tensors, in the structure of the result, to be filled"
            raise CaptureError(msg)
        with torch.no_grad():
            return copy_into(out, self._answer(args, kwargs))

    def _answer_slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The general way: find the graph by its key, or make one, or run eagerly."""
        function = self._function()
        if _busy.inside or _in_a_capture():
            return function(*args, **kwargs)
        if self._closed:
            return self._eager(function, args, kwargs, Reason.CLOSED)
        try:
            call = self._take(function, args, kwargs)
        except CannotCapture as why:
            self._refuse(None, why)
            return self._eager(function, args, kwargs, why.reason)
        entry = self._store.find(call.key)
        if entry is None:
            return self._without_graph(function, call)
        tensors = [leaf.value for leaf in call.tensors]
        if entry.shares_memory(tensors):
            return self._eager(function, args, kwargs, Reason.SHARED_MEMORY)
        self._lead(call, entry)
        result = entry.run(tensors, call.lengths_by_group)
        if result is STALE or result is DUE or result is INSIDE or result is FAILED:
            return self._answer_otherwise(args, kwargs, entry, result)
        return result

    def _answer_otherwise(self, args: tuple[Any, ...], kwargs: dict[str, Any], entry: Entry, why: object) -> Any:
        """A replay alone will not do."""
        function = self._function()
        if why is INSIDE:
            return function(*args, **kwargs)
        if why is FAILED and entry.failure is not None:
            self._throw_away(entry, entry.failure.detail)
            self._refuse(self._take(function, args, kwargs), entry.failure)
        if why is DUE:
            return self._answer_with_check(function, self._take(function, args, kwargs), entry)
        changes = entry.stamp.changes()
        if changes:
            self._throw_away(entry, "; ".join(changes[:_FEW]))
        return self._answer_slowly(args, kwargs)

    def _answer_with_check(self, function: Function, call: Call, entry: Entry) -> Any:
        generators = (*self._options.generators, *look_around(function).generators)
        with _inside():
            result, verdict = recheck(function, entry, call, self._options.tolerance, generators)
        self._books.checks += 1
        entry.check_after(self._options.verify.calls)
        if not verdict.equal:
            self._throw_away(entry, "; ".join(verdict.mismatches))
            self._refuse(call, wrong_result(verdict))
        return result

    def _without_graph(self, function: Function, call: Call) -> Any:
        refused = self._books.refusal(call)
        if refused is not None:
            if self._options.on_error == "raise":
                raise CaptureError(refused.detail)
            return self._eager(function, call.args, call.kwargs, refused.reason)
        if self._frozen:
            return self._eager(function, call.args, call.kwargs, Reason.FROZEN)
        return self._capture(function, call)

    def _eager(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], reason: Reason) -> Any:
        self._books.eager_call(reason, self._books.past_hits + sum(entry.hits for entry in self._store))
        return function(*args, **kwargs)

    def _capture(self, function: Function, call: Call) -> Any:
        """Run the call, capture it, and give the run's own result."""
        with capture_lock:
            if self._store.find(call.key) is not None:  # another thread was quicker
                return self._answer_slowly(call.args, call.kwargs)
            try:
                backend = self._backends(call, self._options, self._made)
            except CannotCapture as why:
                self._refuse(call, why)
                return self._eager(function, call.args, call.kwargs, why.reason)
            if backend is None:
                return self._eager(function, call.args, call.kwargs, Reason.NO_DEVICE)
            self._backend_name = backend.name
            if not self._survives(function, call):
                return self._without_graph(function, call)
            self._books.eager_call(Reason.FIRST_CALL, 0)
            with _inside():
                first = FirstRun(function, call)
                try:
                    self._add(function, call, first, backend)
                except CannotCapture as why:
                    self._refuse(call, why)
        return first.result

    def _survives(self, function: Function, call: Call) -> bool:
        """Where a library may end the process in a capture, the first one is made in a process of its own."""
        self._care.warn_of_watchdog()
        if self._tried or self._care.trial is None:
            return True
        self._tried = True
        why = self._care.trial(function, call, self._options)
        if why:
            self._refuse(call, CannotCapture(Reason.TRIAL, why))
        return not why

    def _add(self, function: Function, call: Call, first: FirstRun, backend: Backend) -> None:
        self._let_go(self._store.make_room(sum(buffer.memory.nbytes for buffer in first.buffers)))
        entry = make(function, call, first, self._options, backend, self._owner(function))
        try:
            self._let_go(self._store.add(entry))
        except CannotCapture:
            entry.close()
            raise
        self._books.captures += 1
        self._books.checks += entry.checks
        self._modules = None
        self._lead(call, entry)
        # Integers were not varied before the first answer, so the first real ones are looked at too.
        verify = self._options.verify
        whole = any(not leaf.value.is_floating_point() and leaf.value.numel() for leaf in call.tensors)
        entry.check_after(1 if verify.rounds and whole else verify.calls)

    def _refuse(self, call: Call | None, why: CannotCapture) -> None:
        """Without a call: it could not even be keyed, or is longer than the largest bucket, which is no error."""
        raises = self._options.on_error == "raise" and not (call is None and why.reason is Reason.BUCKET)
        self._books.refuse(call, why, runs_eagerly=not raises)
        if raises:
            raise CaptureError(why.detail) from why

    def _owner(self, function: Function) -> dict[str, Any] | None:
        """Where this object is kept in the module whose method it stands for; from then on the module is held weakly."""
        module = getattr(function, "__self__", None)
        if module is None or not hasattr(module, "__dict__") or all(held is not self for held in vars(module).values()):
            return None
        if self._weakly is None and isinstance(function, types.MethodType):
            self._weakly = weakref.WeakMethod(function)
            self.__rocsolid_function__ = None
        owner: dict[str, Any] = vars(module)
        return owner

    def _function(self) -> Function:
        function = self.__rocsolid_function__ if self._weakly is None else self._weakly()
        if function is None:
            msg = "the module whose method was captured is gone"
            raise CaptureError(msg)
        return function

    def _take(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        if self._modules is None:
            self._modules = [weakref.ref(module) for _, module in look_around(function).training]
        return take_call(
            self._parameters,
            args,
            kwargs,
            static=self._options.static,
            buckets=self._options.buckets,
            state=situation(self._modules),
        )

    def _lead(self, call: Call, entry: Entry) -> None:
        """Let calls like this one take the short way."""
        with capture_lock:
            tensors = [leaf.value for leaf in call.tensors]
            for road in self._roads:
                if road.entry is None and road.read(call.args, call.kwargs) is not None and road.fits(*tensors):
                    road.lead_to(call, entry)
                    return
            new = Road(call, entry, self._options.static, self._options.buckets)
            self._roads = (new, *self._roads)[: _FEW * max(1, self._options.max_graphs)]

    def _throw_away(self, entry: Entry, why: str) -> None:
        with capture_lock:
            if self._store.drop(entry):
                self._books.threw_away(why)
                _log.warning("a graph of %s is thrown away: %s", self.__name__, why)
                self._let_go([entry])
                self._modules = None

    def _let_go(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._roads = tuple(road for road in self._roads if not road.leads_to(entry) or road.forget(entry))
            self._books.past_hits += entry.hits
            entry.ordering.settle()
            entry.close()


@contextmanager
def _inside() -> Iterator[None]:
    """Captured functions that are called in here take part as themselves, without a graph of their own."""
    before = _busy.inside
    _busy.inside = True
    try:
        yield
    finally:
        _busy.inside = before


def _in_a_capture() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _dress_as(captured: Answering, function: Function) -> None:
    captured.__name__ = getattr(function, "__name__", type(function).__name__)
    captured.__qualname__ = getattr(function, "__qualname__", captured.__name__)
    captured.__doc__ = function.__doc__
    try:
        captured.__signature__ = calling_signature(function)
    except (TypeError, ValueError):
        return
