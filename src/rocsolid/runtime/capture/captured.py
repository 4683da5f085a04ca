"""A captured function: replays a graph where there is one, captures where there can be one, runs in eager otherwise."""

import copy
import functools
import inspect
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import is_
from typing import Any, Final

import torch

from rocsolid.catalog.capture_precautions import Precautions
from rocsolid.errors import CaptureError, UnsupportedTorchError
from rocsolid.model.capture_report import CallPrediction, CaptureReport, Reason
from rocsolid.model.log import log as _log
from rocsolid.numerics import Comparison
from rocsolid.runtime.capture.backends.base import Backend, capture_lock, pause_captures
from rocsolid.runtime.capture.backends.record import RecordBackend
from rocsolid.runtime.capture.call import Call, CannotCapture, Parameters, call_signature, parse_call, read_torch_state
from rocsolid.runtime.capture.capture_once import FirstRun, capture_once, removed_after_error
from rocsolid.runtime.capture.entry import CHECK_DUE, IN_CAPTURE, SEGMENT_FAILED, SHARES_MEMORY, Entry
from rocsolid.runtime.capture.fast_path import NO_LENGTHS, FastPath
from rocsolid.runtime.capture.graph_cache import MAX_SHORT_LIVED, CaptureStats, GraphCache
from rocsolid.runtime.capture.inputs import PaddedBuffer
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.capture.outputs import copy_into_out
from rocsolid.runtime.capture.reachable_state import ReachableState, collect_reachable
from rocsolid.runtime.capture.state_snapshot import (
    InitialState,
    LayoutSnapshot,
    RngSnapshot,
    Snapshot,
    TensorSnapshot,
    restoring,
    tensors_to_save,
)
from rocsolid.runtime.capture.verification import LaterCheck, check_replay, report_failure, wrong_result
from rocsolid.runtime.signature import differences, nearest
from rocsolid.runtime.wrapped_module import WrappedModule, wrap_module
from rocsolid.torchapi.graphs.replay_checks import active_mode, function_modes, mode_counters
from rocsolid.torchapi.pytree import Leaf, holds_tensors, is_cache

_inference_mode: Final = torch.is_inference_mode_enabled
_count_dispatch_modes, _count_function_modes = mode_counters()
_MAX_LISTED_CHANGES: Final = 4
_MAX_FAST_PATHS_PER_GRAPH: Final = 4

Function = Callable[..., Any]
TryInChild = Callable[[Function, Call, Options, Precautions], str]  # returns what went wrong, or an empty string


class _ThreadState(threading.local):
    """Whether this thread is inside a capture. Captured functions that are called there run as plain functions."""

    inside_capture = False


_thread: Final = _ThreadState()


class Inputs(tuple[Any, ...]):  # noqa: SLOT001 - it has an attribute
    """The arguments of a call, with static buffers in place of the tensors; `kwargs` holds the keyword arguments."""

    kwargs: dict[str, Any]


class Captured:
    """A captured function: what `rs.capture` returns for a function. Called like the function it was made from."""

    _rocsolid_captured = True
    __name__: str
    __qualname__: str
    __signature__: inspect.Signature

    def __init__(
        self,
        function: Function,
        options: Options,
        precautions: Precautions = Precautions(),
        try_in_child: TryInChild | None = None,
    ) -> None:
        self._strong_function: Function | None = function
        self._weak_method: weakref.WeakMethod[Any] | None = None
        self._options = options
        self._precautions = precautions
        self._try_in_child = try_in_child
        self._device_backends: dict[object, Backend] = {}
        self._parameters = Parameters.of(function)
        self._methods: dict[int, tuple[weakref.ref[Any], Captured]] = {}  # captured methods by id() of their object
        self._fast_paths: tuple[FastPath, ...] = ()
        self._workarounds: Any = None  # a `WorkaroundSearch` after the first failure
        if options.eager_modules not in ("auto", ()):
            self._make_search(function)  # raises for a wrong name
        self._cache = GraphCache(options.max_graphs, options.memory_budget_bytes)
        self._modules: list[weakref.ref[Any]] | None = None
        #: Keys of calls that are captured once more, because an effect of the first run may not come again.
        self._tried_again: set[Hashable] = set()
        self._growing: dict[tuple[str, type], CannotCapture] = {}  # arguments with caches that grow with every call
        self._cache_lengths: Any = None  # a `CacheLengths` after a call with a dynamic cache that has buckets
        self._own_device: Any = None  # the GPU of the tensors that the function reaches, for calls without tensors
        self._frozen = self._closed = False
        self._later_check: threading.Thread | None = None
        self._backend_name = options.backend
        self._takes_out = options.outputs == "out"
        self._child_tried = not precautions.try_in_child or try_in_child is None
        _copy_metadata(self, function)
        self._stats = CaptureStats(self.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function: replay, capture, or run in eager."""
        return self._call_with_out(args, kwargs) if self._takes_out else self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take the fast path when the call has the form of an earlier one, and the slow path otherwise."""
        for path in self._fast_paths:
            tensors = path.read(args, kwargs)
            if tensors is None:
                continue
            filled = path.static_inputs is not None and all(map(is_, tensors, path.static_inputs))
            if (
                not (filled or path.matches(*tensors))
                or not path.same_torch_state()
                or _inference_mode() is not path.inference_mode
                or _count_dispatch_modes()
                or _count_function_modes() != path.mode_count
                or (path.mode_count and path.function_modes != function_modes())
            ):
                continue
            if _thread.inside_capture:
                break
            entry, lengths = path.entry, NO_LENGTHS
            if entry is None:
                entry, lengths = path.find_by_length(tensors)
                if entry is None:
                    break
            result = entry.run(tensors, lengths, filled=filled)
            if type(result) is object:  # one of the constants of `entry.py`
                return self._call_without_replay(args, kwargs, entry, result)
            if entry is not self._cache.last_used:
                self._switch_graph(path, entry)
            return result
        return self._call_slow(args, kwargs)

    def _switch_graph(self, path: FastPath, entry: Entry) -> None:
        """The call used another graph than the last one: try its fast path first next time, and mark the graph as used."""
        if not entry.stats.closed:
            self._cache.mark_used(entry)
        others = tuple(other for other in self._fast_paths if other is not path)
        if len(others) < len(self._fast_paths):  # another thread may have removed it meanwhile
            self._fast_paths = (path, *others)

    def _call_with_out(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = kwargs.pop("out", None)
        if out is None:
            msg = f'{self.__name__} was captured with outputs="out": pass out= with tensors in the same structure as the result'
            raise CaptureError(msg)
        with torch.no_grad():
            return copy_into_out(out, self._call(args, kwargs))

    def _call_slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Find the graph by its cache key, or capture one, or run in eager."""
        function = self._function()
        if _thread.inside_capture or _stream_is_capturing():
            return function(*args, **kwargs)
        if mode := active_mode():
            problem = f"{mode}, which a replay would bypass"
            self._refuse(None, CannotCapture(Reason.TORCH_MODE, problem, fix="call the function outside of it"))
            return self._run_eager(function, args, kwargs, Reason.TORCH_MODE)
        if self._closed:
            return self._run_eager(function, args, kwargs, Reason.CLOSED)
        try:
            if self._options.buckets and (name := self._find_dynamic_cache(args, kwargs)):
                return self._cache_lengths.call(self._calls(function), name, args, kwargs)
            if self._growing:  # before it is parsed, which takes a while
                passed = self._parameters.bind(args, kwargs)
                self._refuse_growing_cache(Leaf(name, value) for name, _, value in passed)
            call = self._parse(function, args, kwargs)
            self._refuse_growing_cache(call.caches)
        except CannotCapture as why:
            self._refuse(None, why)
            return self._run_eager(function, args, kwargs, why.reason)
        entry = self._cache.find(call.key)
        if entry is None:
            return self._call_without_graph(function, call)
        self._add_fast_path(call, entry)
        result = entry.run(call.inputs, call.lengths_by_group)
        if type(result) is object:  # one of the constants of `entry.py`
            return self._call_without_replay(args, kwargs, entry, result)
        return result

    def _find_dynamic_cache(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the name of an argument of `buckets=` that is a dynamic cache; empty if there is none."""
        passed = self._parameters.bind(args, kwargs)
        if not any(name in self._options.buckets and is_cache(value) for name, _, value in passed):
            return ""
        if self._cache_lengths is None:
            from rocsolid.runtime.capture.cache_lengths import CacheLengths

            self._cache_lengths = CacheLengths(self._options.buckets, self._parameters, self._options.tolerance)
        found: str = self._cache_lengths.find(args, kwargs)
        return found

    def _calls(self, function: Function) -> Any:
        from rocsolid.runtime.capture.cache_lengths import Calls

        def count(reason: Reason) -> None:
            self._stats.count_eager_call(reason, self._cache)

        def warm(call: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[Entry | None, Call]:
            parsed = self._parse(function, *call)
            if self._cache.find(parsed.key) is not None or self._stats.refusal(parsed) is not None:
                count(Reason.FIRST_CALL)  # otherwise the capture does
            self.warm([call])
            return self._cache.find(parsed.key), parsed

        return Calls(
            in_eager=lambda call: function(*call[0], **call[1]),
            count=count,
            warm=warm,
            captured=lambda call: self._call(*call),
            frozen=self._frozen,
        )

    def _refuse_growing_cache(self, arguments: Iterable[Leaf]) -> None:
        """Raise CannotCapture for a cache that was seen to grow with every call."""
        for leaf in arguments:
            why = self._growing.get((leaf.path, type(leaf.value)))
            if why is not None and holds_tensors(leaf.value):
                raise why

    def _call_without_replay(self, args: tuple[Any, ...], kwargs: dict[str, Any], entry: Entry, why: object) -> Any:
        """Handle a call whose graph was found but did not return a result; `why` is one of the constants of `entry.py`."""
        function = self._function()
        if why is IN_CAPTURE:
            return function(*args, **kwargs)
        if why is SHARES_MEMORY:
            return self._run_eager(function, args, kwargs, Reason.SHARED_MEMORY)
        failure = entry.stats.failure
        if why is SEGMENT_FAILED and failure is not None and _has_read_other_values(failure, entry):
            return self._run_eager(function, args, kwargs, Reason.HOST_SYNC)
        if why is SEGMENT_FAILED and failure is not None:
            self._handle_failed_segment(function, entry, self._parse(function, args, kwargs), failure)
        changes = entry.captured_state.changes()
        if why is CHECK_DUE and not changes and not entry.stats.put_off_check(self._options.verify.max_overhead):
            return self._call_with_check(function, self._parse(function, args, kwargs), entry)
        if changes:
            reason = "; ".join(change.text for change in changes[:_MAX_LISTED_CHANGES])
            self._invalidate(entry, reason)
            if self._stats.invalidated_too_often(entry):
                problem = (
                    f"its graphs were invalidated {MAX_SHORT_LIVED} times in a row, the last time because {reason}"
                )
                fix = "keep what changes in a tensor that is updated in place, or pass it as an argument"
                self._refuse(
                    self._parse(function, args, kwargs), CannotCapture(Reason.CHANGING_STATE, problem, fix=fix)
                )
        return self._call_slow(args, kwargs)

    def _call_with_check(self, function: Function, call: Call, entry: Entry) -> Any:
        """Run in eager, compare a replay with it, and invalidate the graph when they differ."""
        if self._options.verify.in_background and not entry.stats.check_required:
            later = LaterCheck(function, entry, call, self._options.tolerance)
            if later.possible:
                return self._call_and_check_later(later, call, entry)
        check = check_replay
        if entry.training is not None:
            from rocsolid.runtime.capture.training import check_training_step

            check = check_training_step
        generators = (*self._options.generators, *entry.captured_state.generators)
        started = time.perf_counter()
        try:
            with _inside_capture():
                result, comparison = check(function, entry, call, self._options.tolerance, generators)
        except CannotCapture as why:  # an eager module returned something else than during the capture
            if _has_read_other_values(why, entry):
                return self._run_eager(function, call.args, call.kwargs, Reason.HOST_SYNC)
            self._handle_failed_segment(function, entry, call, why)
            return self._call_slow(call.args, call.kwargs)
        self._stats.count_check()
        self._stats.count_eager_call(Reason.CHECK, self._cache)
        entry.stats.record_check_time(started)
        entry.stats.schedule_check(self._options.verify.calls)
        if not comparison.equal:
            self._report_failed_check(comparison, entry)
            self._refuse(call, wrong_result(comparison))
        return result

    def _handle_failed_segment(self, function: Function, entry: Entry, call: Call, failure: CannotCapture) -> None:
        """Discard a graph in which a module that runs in eager returned something else than during the capture."""
        captures_again = not self._frozen and self._workarounds.change(function, failure)  # it has made the segment
        self._invalidate(entry, failure.message.partition("\n")[0], recapture=captures_again)
        if not captures_again:
            self._refuse(call, self._workarounds.original or failure)

    def _report_failed_check(self, comparison: Comparison, entry: Entry) -> None:
        report_failure(self.__name__, comparison, self._options.verify)
        self._invalidate(entry, "check failed: " + "; ".join(comparison.mismatches), recapture=False)

    def _call_and_check_later(self, later: LaterCheck, call: Call, entry: Entry) -> Any:
        """Replay, and compare the result with eager in another thread, one at a time. No capture starts meanwhile."""
        from rocsolid.runtime.background_thread import run_in_background

        entry.stats.schedule_check((self._options.verify.calls or 0) + 1)  # this call is a replay, too
        result = self._call_slow(call.args, call.kwargs)
        if self._later_check is not None and self._later_check.is_alive():
            return result
        later.keep_result(result)

        def compare() -> None:
            started = time.perf_counter()
            with pause_captures(), _inside_capture():
                try:
                    comparison = later.compare()
                except Exception as error:  # noqa: BLE001 - nobody waits for it, and the caller has its result
                    _log.warning("%s: a check in the background failed: %s", self.__name__, error)
                    return
                entry.stats.record_check_time(started)
                if comparison is None:
                    return
                self._stats.count_check()
                if not comparison.equal:
                    self._report_failed_check(comparison, entry)
                    raises = self._options.on_error == "raise"  # the next call does
                    self._stats.refuse(call, wrong_result(comparison), runs_in_eager=not raises)

        self._later_check = run_in_background(compare, f"check-{self.__name__}")
        return result

    def _call_without_graph(self, function: Function, call: Call) -> Any:
        refused = self._stats.refusal(call)
        if refused is not None:
            if self._options.on_error == "raise":
                raise CaptureError(refused.message)
            return self._run_eager(function, call.args, call.kwargs, refused.reason)
        if self._frozen:
            return self._run_eager(function, call.args, call.kwargs, Reason.FROZEN)
        return self._capture(function, call)

    def _run_eager(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], reason: Reason) -> Any:
        self._stats.count_eager_call(reason, self._cache)
        return function(*args, **kwargs)

    def _capture(self, function: Function, call: Call) -> Any:
        """Run the call in eager, capture it, and return the result of the eager run."""
        with capture_lock:
            if self._cache.find(call.key) is not None:  # another thread has captured it meanwhile
                return self._call_slow(call.args, call.kwargs)
            try:
                backend = self._select_backend(call)
            except CannotCapture as why:
                self._refuse(call, why)
                return self._run_eager(function, call.args, call.kwargs, why.reason)
            if backend is None:
                reason = Reason.NO_DEVICE if self._options.backend == "auto" else Reason.EAGER_BACKEND
                return self._run_eager(function, call.args, call.kwargs, reason)
            self._backend_name = backend.name
            if not self._survives_in_child(function, call):
                return self._call_without_graph(function, call)
            self._stats.count_eager_call(Reason.FIRST_CALL, self._cache)
            with _inside_capture():
                first = FirstRun(function, call)
                try:
                    self._add_graph(function, call, first, backend)
                except CannotCapture as why:
                    if first.growing:
                        self._growing.update({(leaf.path, type(leaf.value)): why for leaf in call.caches})
                    # A compile, or other work that is done only once, may have advanced an iterator of some library.
                    if first.advanced and call.key not in self._tried_again and self._options.on_error != "raise":
                        self._tried_again.add(call.key)
                    else:
                        self._refuse(None if first.growing else call, why)
                except UnsupportedTorchError as error:
                    self._refuse(call, CannotCapture(Reason.ERROR, str(error)))
        return first.result

    def _select_backend(self, call: Call) -> Backend | None:
        """Return the backend that `backend=` names or that fits the call's tensors; None when the call is not to be captured."""
        options = self._options
        if options.backend == "eager":
            return None
        if options.backend == "record":
            if not options.simulate:
                return RecordBackend()
            from rocsolid.runtime.capture.backends.simulated_runtime import active_runtime

            return RecordBackend(active_runtime())
        if call.device.type != "cuda":
            if options.backend == "device":
                msg = 'backend="device" requires tensors on a GPU, and no tensor of this call is on one'
                raise CaptureError(msg)
            return None
        _refuse_mixed_devices(call)
        if call.device not in self._device_backends:
            # One backend for all graphs of this function: they may share memory with each other, but not with other functions.
            self._device_backends[call.device] = self._device_backend(call.device)
        return self._device_backends[call.device]

    def _device_backend(self, device: Any) -> Backend:
        from rocsolid.runtime.capture.backends.device import DeviceBackend

        pool = self._options.pool
        return DeviceBackend(
            device,
            shared_pool=pool == "shared" or (pool == "auto" and not self._precautions.pool_per_graph),
            warm_up_on_capture_stream=self._precautions.warm_up_on_capture_stream,
            keep_graph=self._options.keep_graph,
        )

    def _survives_in_child(self, function: Function, call: Call) -> bool:
        """Return whether the call can be captured in a child process, which is tried first where a library may end the process."""
        _warn_about_collectives(self._precautions.collectives_warning)
        if self._child_tried or self._try_in_child is None:
            return True
        self._child_tried = True
        failure = self._try_in_child(function, call, self._options, self._precautions)
        if failure:
            self._refuse(call, CannotCapture(Reason.CHILD_PROCESS, failure))
        return not failure

    def _add_graph(self, function: Function, call: Call, first: FirstRun, backend: Backend) -> None:
        self._release(self._cache.make_room(sum(buffer.memory.nbytes for buffer in first.buffers)))
        with removed_after_error(first.traces):
            entry = capture_once(function, call, first, self._options, backend, self._owner(function), self._search)
            try:
                self._release(self._cache.add(entry))
            except CannotCapture:
                entry.close()
                raise
        self._stats.count_capture(entry)
        self._modules = None
        self._add_fast_path(call, entry)
        # The verification does not vary integers, so the first call with other integers is compared with eager too.
        verify = self._options.verify
        has_integers = any(not leaf.value.is_floating_point() and leaf.value.numel() for leaf in call.tensors)
        required = bool(verify.rounds and has_integers)
        entry.stats.schedule_check(1 if required else verify.calls, required=required)

    def _search(self, function: Function, attempt: Callable[..., Entry], is_compiled: Callable[[], bool]) -> Entry:
        """Return the result of an attempt to capture: of the function as it is, or with workarounds."""
        failure = None
        if self._workarounds is None:
            try:
                return attempt()
            except CannotCapture as why:
                failure = why
            self._make_search(function)
        entry: Entry = self._workarounds.capture(function, attempt, is_compiled, failure)
        return entry

    def _make_search(self, function: Function) -> None:
        from rocsolid.runtime.capture.workarounds import WorkaroundSearch

        self._workarounds = WorkaroundSearch(function, self._options)

    def _refuse(self, call: Call | None, why: CannotCapture) -> None:
        """Remember a refusal, and raise it with on_error="raise". A length beyond the largest bucket (`call` is None) never raises."""
        raises = self._options.on_error == "raise" and not (call is None and why.reason is Reason.BUCKET)
        self._stats.refuse(call, why, runs_in_eager=not raises)
        if raises:
            raise CaptureError(why.message) from why

    def _owner(self, function: Function) -> Any:
        """Return the module that holds this object in place of its method; None when there is none.

        The method is then held by a weak reference, because module and captured function would otherwise hold each other.
        """
        module = getattr(function, "__self__", None)
        if module is None or not hasattr(module, "__dict__"):
            return None
        if self._weak_method is None and all(value is not self for value in vars(module).values()):
            return None
        if self._weak_method is None and isinstance(function, types.MethodType):
            self._weak_method = weakref.WeakMethod(function)
            self._strong_function = None
        return module

    @property
    def __rocsolid_function__(self) -> Function | None:
        return self._strong_function if self._weak_method is None else self._weak_method()

    def _function(self) -> Function:
        function = self.__rocsolid_function__
        if function is None:
            msg = f"the module whose method `{self.__name__}` was captured has been deleted"
            raise CaptureError(msg)
        return function

    def _parse(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        if self._modules is None:
            reached = collect_reachable(function)
            self._modules = [weakref.ref(module) for _, module in reached.named_modules]
            self._own_device = _gpu_of(reached)
        call = parse_call(
            self._parameters,
            args,
            kwargs,
            static=self._options.static,
            buckets=self._options.buckets,
            torch_state=read_torch_state(self._modules),
        )
        if call.tensors or not torch.cuda.is_available():
            return call
        device = self._own_device
        if device is None and call.identity_objects:
            device = _gpu_of(collect_reachable(None, call.identity_arguments))
        return replace(call, own_device=device)

    def _add_fast_path(self, call: Call, entry: Entry) -> None:
        """Make calls of the same form use the fast path."""
        with capture_lock:
            tensors = [leaf.value for leaf in call.tensors]
            for path in self._fast_paths:
                if path.entry is None and path.read(call.args, call.kwargs) is not None and path.matches(*tensors):
                    path.add(call, entry)
                    return
            new = FastPath(call, entry, self._options.static, self._options.buckets)
            limit = _MAX_FAST_PATHS_PER_GRAPH * max(1, self._options.max_graphs)
            self._fast_paths = (new, *self._fast_paths)[:limit]

    def _invalidate(self, entry: Entry, reason: str, *, recapture: bool = True) -> None:
        with capture_lock:
            if self._cache.remove(entry):
                self._stats.invalidate(reason)
                captures_again = recapture and not self._frozen
                consequence = "recapturing with this call" if captures_again else "running in eager from now on"
                _log.warning("%s: graph invalidated, %s (%s)", self.__name__, reason, consequence)
                self._release([entry])
                self._modules = None
                if (function := self.__rocsolid_function__) is not None:
                    self._parameters = Parameters.of(function)  # its defaults may have changed

    def _release(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._fast_paths = tuple(path for path in self._fast_paths if not path.uses(entry) or path.remove(entry))
            self._stats.count_removed(entry)
            entry.ordering.synchronize()
            entry.close()

    def warm(self, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> None:
        """Capture these calls ahead of time, the largest first. Tensors, random numbers and Python values are restored.

        Args:
            calls: one `(args, kwargs)` for each call.

        """
        function = self._function()
        try:
            parsed = [self._parse(function, args, kwargs) for args, kwargs in calls]
        except CannotCapture as why:
            raise CaptureError(why.message) from why
        arguments = {path: value for call in parsed for path, value in call.identity_arguments.items()}
        arguments |= {leaf.path: leaf.value for call in parsed for leaf in call.caches}  # to be restored
        state = collect_reachable(function, arguments)
        initial = InitialState(
            tensors=TensorSnapshot(tensors_to_save(state, [(ref.path, ref.value) for ref in state.tensors])),
            rng=RngSnapshot(
                next((call.device for call in parsed if call.device.type != "cpu"), torch.device("cpu")),
                (*self._options.generators, *state.generators),
            ),
            inputs=TensorSnapshot([leaf.value for call in parsed for leaf in call.tensors]),
        )
        with restoring(Snapshot(state), LayoutSnapshot(state), initial):
            for call in sorted(parsed, key=_input_bytes, reverse=True):
                if self._cache.find(call.key) is None and self._stats.refusal(call) is None:
                    self._capture(function, call)

    def freeze(self) -> None:
        """From now on replay or run in eager, and capture nothing new."""
        self._frozen = True

    def inputs(self, *args: Any, **kwargs: Any) -> Inputs:
        """Return the static input buffers of the graph for such a call.

        Write into them, as with `.copy_()`, and call the captured function with them: this saves the copy. A buffer that is given
        other memory (`buffer.data = ...`) is no longer read.
        """
        function = self._function()
        try:
            call = self._parse(function, args, kwargs)
        except CannotCapture as why:
            raise CaptureError(why.message) from why
        if self._cache.find(call.key) is None:
            self._call_without_graph(function, call)
        entry = self._cache.find(call.key)
        if entry is None:
            refused = self._stats.refusal(call)
            msg = f"{self.__name__} has no graph for this call: {refused.message if refused else 'it runs in eager'}"
            raise CaptureError(msg)
        self._add_fast_path(call, entry)
        entry.stats.buffers_lent = True
        for path in self._fast_paths:
            path.lend_inputs()
        tensors = [
            buffer.lend(tuple(dim.length for dim in call.bucketed if dim.tensor == index))
            if isinstance(buffer, PaddedBuffer)
            else buffer.tensor
            for index, buffer in enumerate(entry.buffers)
        ]
        positional, keywords = call.rebuild(tensors)
        inputs = Inputs(positional)
        inputs.kwargs = keywords
        return inputs

    def invalidate(self, reason: str = "invalidate() was called") -> None:
        """Discard all graphs; the next call captures again."""
        with capture_lock:
            entries = self._cache.clear()
            self._stats.forget_refusals()
            self._modules = None
            if entries:
                self._stats.invalidate(reason)
            self._release(entries)

    def explain(self, *args: Any, **kwargs: Any) -> CallPrediction:
        """Return what such a call would do, and why, without running it."""
        try:
            if self._options.buckets and (name := self._find_dynamic_cache(args, kwargs)):
                ready = self._cache_lengths.has_graph(name, args, kwargs)
                reason = f"with a static cache in place of `{name}`, of the size of a bucket"
                return CallPrediction(action="replay" if ready else "capture", reason=reason)
            call = self._parse(self._function(), args, kwargs)
            self._refuse_growing_cache(call.caches)
        except CannotCapture as refusal:
            return CallPrediction(action="eager", reason=refusal.message)
        if (entry := self._cache.find(call.key)) is not None:
            notes = tuple(map(str, entry.workarounds))
            return CallPrediction(action="replay", reason="there is a graph for this call", workarounds=notes)
        refused = self._stats.refusal(call)
        if refused is not None:
            return CallPrediction(action="eager", reason=refused.message)
        known = [entry.signature for entry in self._cache]
        changed = tuple(differences(nearest(known, call.signature), call.signature)) if known else ()
        if self._frozen or self._closed:
            state = "closed" if self._closed else "frozen (captures nothing new)"
            reason = f"no graph for this call, and {self.__name__} is {state}"
            return CallPrediction(action="eager", reason=reason, differences=changed)
        return CallPrediction(action="capture", reason="no graph for this call yet", differences=changed)

    def __repr__(self) -> str:
        return f"<Captured {str(self.report()).partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def report(self) -> CaptureReport:
        """Return graphs, counters and refusals. The report can be printed, and saved with `.json()`."""
        return self._stats.report(self._cache, self._backend_name, frozen=self._frozen)

    def debug_dump(self, path: str) -> None:
        """Write each graph to a file: `path.0` and so on. On a GPU this requires `keep_graph=True`."""
        for index, entry in enumerate(self._cache):
            entry.graph.dump(f"{path}.{index}")

    def close(self) -> None:
        """Free every graph. Later calls run in eager. Results that were returned stay valid."""
        self.invalidate("close() was called")
        self._closed = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(self._function(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a public attribute on the function itself, where its own code reads it."""
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._function(), name, value)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the captured method of an instance. Each instance has its own graphs."""
        if instance is None:
            return self
        key = id(instance)
        known = self._methods.get(key)
        if known is None or known[0]() is not instance:
            forget = functools.partial(_forget_method, weakref.ref(self), key)
            method = types.MethodType(self._function(), instance)
            try:
                reference = weakref.ref(instance, forget)
            except TypeError as error:
                kind = type(instance).__qualname__
                msg = (
                    f"a method of {kind} cannot be captured, because its instances have no weak references\n"
                    f'fix: add "__weakref__" to {kind}.__slots__'
                )
                raise CaptureError(msg) from error
            known = self._methods[key] = reference, self.with_function(method)
            known[1].hold_weakly()
        return known[1]

    def hold_weakly(self) -> None:
        """Hold the object of a captured method by a weak reference: the object's class holds this captured method."""
        self._weak_method = weakref.WeakMethod(self._function())
        self._strong_function = None

    def with_function(self, function: Function) -> "Captured":
        """Return a captured function with the same options, without graphs, for another function."""
        return type(self)(function, self._options, self._precautions, self._try_in_child)

    def with_undo(self, undo_writes: Callable[[], None]) -> "Captured":
        """Return a captured function that checks its Python-side state while the GPU works, although it writes to tensors.

        If the state has changed, `undo_writes` is called before the function runs in eager. It must restore what the replay wrote,
        as far as eager does not write it again.
        """
        options = replace(self._options, undo_writes=undo_writes)
        return type(self)(self._function(), options, self._precautions, self._try_in_child)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Captured":
        return self.with_function(copy.deepcopy(self._function(), memo))

    def __reduce__(self) -> Any:
        return type(self), (self._function(), self._options, self._precautions, self._try_in_child)

    # `sys` may already be None when the interpreter exits, so the function is bound here.
    def __del__(self, _is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _is_finalizing() and vars(self).get("_cache"):
            self.close()


class CapturedModule(WrappedModule):
    """A captured module: what `rs.capture` returns for an `nn.Module`.

    It is an instance of a subclass of the module's own class and shares all attributes with the module, so that parameters,
    `state_dict()`, `to()`, `train()`, hooks and methods work as before. Its calls, and calls of its `forward`, are captured.
    """

    __slots__ = ()
    _rocsolid_captured = True

    @property
    def rocsolid(self) -> Captured:
        """The captured function, for modules that have a `report` or another of these methods themselves."""
        captured: Captured = self.__rocsolid__
        return captured

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module: replay, capture, or run in eager."""
        return self.__rocsolid__(*args, **kwargs)

    def report(self) -> CaptureReport:
        """Return graphs, counters and refusals. The report can be printed, and saved with `.json()`."""
        return self.rocsolid.report()  # type: ignore[no-any-return]

    def warm(self, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> None:
        """Capture these calls ahead of time, as `Captured.warm`."""
        self.rocsolid.warm(calls)

    def freeze(self) -> None:
        """From now on replay or run in eager, and capture nothing new."""
        self.rocsolid.freeze()

    def inputs(self, *args: Any, **kwargs: Any) -> Inputs:
        """Return the static input buffers of the graph for such a call, as `Captured.inputs`."""
        return self.rocsolid.inputs(*args, **kwargs)  # type: ignore[no-any-return]

    def invalidate(self, reason: str = "invalidate() was called") -> None:
        """Discard all graphs; the next call captures again."""
        self.rocsolid.invalidate(reason)

    def explain(self, *args: Any, **kwargs: Any) -> CallPrediction:
        """Return what such a call would do, and why, without running it."""
        return self.rocsolid.explain(*args, **kwargs)  # type: ignore[no-any-return]

    def debug_dump(self, path: str) -> None:
        """Write each graph to a file, as `Captured.debug_dump`."""
        self.rocsolid.debug_dump(path)

    def close(self) -> None:
        """Free every graph. Later calls run in eager."""
        self.rocsolid.close()

    def __copy__(self) -> Any:
        return captured_module(self.__rocsolid__.with_function(copy.copy(self.__rocsolid_function__)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return captured_module(copy.deepcopy(self.__rocsolid__, memo))

    def __reduce_ex__(self, _: Any) -> Any:
        return captured_module, (self.__rocsolid__,)


_MODULE_METHODS: Final = (
    "warm", "freeze", "inputs", "invalidate", "explain", "report", "debug_dump", "close", "_repr_html_",
)  # fmt: skip


def captured_module(captured: Captured) -> Any:
    """Return a module that shares everything with the module inside `captured`, but whose calls are captured."""
    return wrap_module(captured, CapturedModule, _MODULE_METHODS)


def _forget_method(captured: "weakref.ref[Captured]", key: int, _: Any) -> None:
    owner = captured()
    if owner is not None:
        owner._methods.pop(key, None)  # noqa: SLF001 - of this module


@contextmanager
def _inside_capture() -> Iterator[None]:
    """Captured functions that are called in the block run as plain functions, without a graph of their own."""
    was_inside = _thread.inside_capture
    _thread.inside_capture = True
    try:
        yield
    finally:
        _thread.inside_capture = was_inside


def _stream_is_capturing() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _has_read_other_values(failure: CannotCapture, entry: Entry) -> bool:
    """Return whether Python has read other values than during the capture in one of not too many calls."""
    return failure.reason is Reason.HOST_SYNC and entry.stats.may_read_other_values()


def _gpu_of(state: ReachableState) -> Any:
    """Return the GPU of the first tensor that is on one; None if there is none."""
    return next((ref.value.device for ref in state.tensors if ref.value.device.type == "cuda"), None)


def _refuse_mixed_devices(call: Call) -> None:
    devices = {leaf.value.device for leaf in call.tensors if leaf.value.device.type == "cuda"}
    if len(devices) > 1:
        places = ", ".join(f"`{leaf.path}` on {leaf.value.device}" for leaf in call.tensors)
        problem = f"the tensors of the call are on several GPUs, and a graph belongs to one GPU: {places}"
        raise CannotCapture(Reason.ARGUMENT, problem, fix="move all arguments to one GPU")
    for leaf in call.tensors:
        if leaf.value.device.type == "cpu" and leaf.value.dim() == 0:
            raise CannotCapture(
                Reason.ARGUMENT,
                f"argument `{leaf.path}` is a 0-dim CPU tensor, whose value would become a constant of the graph",
                fix=f"pass {leaf.path}.cuda(), or a Python number",
            )


_logged_warnings: Final[set[str]] = set()


def _warn_about_collectives(warning: str) -> None:
    """Log once that collectives of this process may make captures fail on this platform."""
    if warning and warning not in _logged_warnings and _has_collectives():
        _logged_warnings.add(warning)
        _log.warning("%s", warning)


def _has_collectives() -> Any:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and "nccl" in distributed.get_backend()


def _copy_metadata(captured: Captured, function: Function) -> None:
    captured.__name__ = getattr(function, "__name__", type(function).__name__)
    captured.__qualname__ = getattr(function, "__qualname__", captured.__name__)
    captured.__doc__ = function.__doc__
    try:
        captured.__signature__ = call_signature(function)
    except (TypeError, ValueError):
        return


def _input_bytes(call: Call) -> int:
    return sum(torch.Size(spec.shape).numel() * int(spec.dtype.itemsize) for spec in call.specs)
