"""One captured graph with its static buffers: copy the inputs in, replay, return the results.

`Entry.run` is the end of the replay fast path. Everything in it is prepared when the entry is built.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import repeat
from operator import and_
from typing import TYPE_CHECKING, Any, Final

import torch

from rocsolid.model.capture_report import GraphRecord, Workaround
from rocsolid.runtime.capture.backends.base import Graph, Ordering
from rocsolid.runtime.capture.call import Call, CallTensors, CannotCapture
from rocsolid.runtime.capture.inputs import Buffer, CopyIn, make_copy_in
from rocsolid.runtime.capture.outputs import MakeResult, Outputs, make_result_function
from rocsolid.runtime.capture.state_snapshot import CapturedState
from rocsolid.runtime.signature import CallSignature
from rocsolid.torchapi.graphs.batched_copy import foreach_copy
from rocsolid.torchapi.graphs.capture_state import reported_as_capturing
from rocsolid.torchapi.graphs.replay_checks import byte_count, storage_id

if TYPE_CHECKING:
    from rocsolid.runtime.capture.training import TrainingStep

# `Entry.run` returns one of these in place of a result.
INVALID: Final = object()  # the captured state has changed: the result must not be used
SEGMENT_FAILED: Final = object()  # an eager segment returned something else than during the capture
IN_CAPTURE: Final = object()  # another capture is recording the current stream: run the function itself
SHARES_MEMORY: Final = object()  # a tensor that the function writes to shares memory with another one: run in eager
CHECK_DUE: Final = object()  # this call must be compared with eager
_NEVER: Final = -1
_MAX_OTHER_VALUES: Final = 3

# Copies the tensors in, replays and returns the result: (tensors, lengths by group) -> result.
ReplayStep = Callable[[Sequence[Any], Mapping[int, int]], Any]


@dataclass(slots=True)
class EntryStats:
    """The part of an entry that changes after it is built: counters, the next check, closed or not."""

    replays: int = 0
    check_at: int = _NEVER  # the number of replays after which the next call is compared with eager
    check_required: bool = False
    check_s: float = 0.0  # how long the last comparison took
    scheduled_at: int = 0  # the number of replays when the next check was scheduled
    scheduled_s: float = 0.0  # the time when it was scheduled
    checks: int = 0
    relative_error: float | None = None
    capture_ms: float = 0.0
    last_used: int = 0  # the cache's clock at the last use
    branches_on_capture: bool = False  # the function takes another branch when torch says that it is being captured
    closed: bool = False
    buffers_lent: bool = False  # `inputs()` has returned the static inputs
    failure: CannotCapture | None = None  # of an eager segment
    other_values: int = 0  # calls in which Python read other values than during the capture

    def record_capture(self, capture_ms: float) -> None:
        """Store how long capture and verification took."""
        self.capture_ms = capture_ms

    def record_branch(self) -> None:
        """Store that the function takes another branch during a capture; later checks compare with that branch."""
        self.branches_on_capture = True

    def may_read_other_values(self) -> bool:
        """Count a call in which Python read other values. Returns False if more than a few calls do, which is slower than eager."""
        self.other_values += 1
        return self.other_values <= max(_MAX_OTHER_VALUES, self.replays // 4)

    def record_use(self, clock: int) -> None:
        """Store when the entry was last used."""
        self.last_used = clock

    def record_check(self, relative_error: float) -> None:
        """Count a comparison with eager."""
        self.checks += 1
        self.relative_error = max(self.relative_error or 0.0, relative_error)

    def record_check_time(self, started: float) -> None:
        """Store how long the last comparison took, which started at this time."""
        self.check_s = time.perf_counter() - started

    def schedule_check(self, calls: int | None, *, required: bool = False) -> None:
        """Compare the `calls`-th call from now with eager; with None, no call is compared any more.

        A check that is not `required` may be put off.
        """
        self.check_at = _NEVER if calls is None else self.replays + calls - 1
        self.check_required = required
        self.scheduled_at, self.scheduled_s = self.replays, time.perf_counter()

    def put_off_check(self, max_overhead: float | None) -> bool:
        """If the check that is due would take a larger share of the time than this, schedule it later and return True."""
        if max_overhead is None or self.check_required:
            return False
        elapsed_s = time.perf_counter() - self.scheduled_s
        missing_s = self.check_s / max_overhead - elapsed_s
        if missing_s <= 0:
            return False
        per_call_s = elapsed_s / max(1, self.replays - self.scheduled_at)
        self.check_at = self.replays + math.ceil(missing_s / per_call_s)
        return True


@dataclass(frozen=True, kw_only=True, eq=False, slots=True, weakref_slot=True)
class Entry:
    """A captured call. Complete when it is built; what changes later is in `stats`."""

    key: Any
    signature: CallSignature
    identity_objects: list[Any]  # kept alive because the key contains their id()
    graph: Graph
    buffers: list[Buffer]
    static_inputs: list[Any]  # the tensors of the buffers
    input_bounds: list[int]  # the first and the end address of each buffer, sorted
    constants: Sequence[Any]  # other tensors that the graph reads and nobody else keeps
    outputs: Outputs
    captured_state: CapturedState
    state_check: Callable[[], bool]  # its quick check
    ordering: Ordering
    lock: Any  # the lock of the ordering
    written_arguments: tuple[int, ...]  # indices of tensors that the function writes to
    written_state: tuple[tuple[str, Any], ...]  # tensors outside the arguments that the function writes to
    mutates: tuple[str, ...]  # paths of both
    writes: bool  # the function writes to an argument or to state
    own_parts: int  # how many objects the caches among the arguments consist of, without those of `static=`
    state_objects: frozenset[int]  # ids of objects of the state, if there are such caches
    state_storages: tuple[
        frozenset[int], frozenset[int]
    ]  # storage ids of the tensors in the state: all, and the written ones
    check_before_replay: (
        bool  # check the captured state before the replay, because a replay changes state (writes, random numbers)
    )
    undo_writes: (
        Callable[[], None] | None
    )  # takes back what a replay wrote to state, so that the check can follow the replay
    copy_in: CopyIn
    replay: Callable[[], None]
    make_result: MakeResult
    step: ReplayStep | None  # used instead of `copy_in`, `replay` and `make_result` where those are not enough
    training: "TrainingStep | None"  # set when the backward pass is captured too
    workarounds: tuple[Workaround, ...]  # what differs from eager, so that the call could be captured
    as_captured: Callable[[], AbstractContextManager[Any]]  # context in which eager runs what was captured
    stats: EntryStats

    @property
    def bytes(self) -> int:
        """The memory of the graph and its static inputs."""
        return self.graph.bytes + sum(byte_count(buffer.memory) for buffer in self.buffers)

    def run(  # noqa: C901 - one branch for each outcome
        self, tensors: Sequence[Any], lengths: Mapping[int, int], *, filled: bool = False
    ) -> Any:
        """Replay for a call and return its result, or one of the constants above.

        `filled` means that the tensors are the static inputs themselves.
        """
        stats = self.stats
        with self.lock:
            if stats.closed:  # another thread has closed it meanwhile
                return INVALID
            if not self.ordering.wait_for_replays():
                return IN_CAPTURE
            if (self.writes and self.shares_memory(tensors)) or (self.state_objects and self._reaches_parts(tensors)):
                return SHARES_MEMORY
            if stats.replays == stats.check_at:
                return CHECK_DUE
            if self.check_before_replay and not self.captured_state.is_unchanged():
                return INVALID
            if stats.buffers_lent and not filled:
                tensors = self._copy_misplaced(tensors)
            try:
                if self.step is None:
                    if not filled:
                        self.copy_in(tensors)
                    self.replay()
                    result = self.make_result(tensors, lengths)
                else:
                    result = self.step(tensors, lengths)
            except CannotCapture as failure:
                stats.failure = failure
                return SEGMENT_FAILED
            # The replay only launched the work, so the CPU checks this while the GPU runs it.
            if not (self.check_before_replay or self.state_check() or self.captured_state.is_unchanged()):
                if self.undo_writes is not None:
                    self.undo_writes()
                return INVALID
            stats.replays += 1
            return result

    def _copy_misplaced(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Return the tensors, with a copy of each that is the static input of another argument: it is overwritten before it is read."""
        addresses = map(torch.Tensor.data_ptr, tensors)
        # An odd position in the sorted bounds is inside a buffer.
        if not any(map(and_, map(bisect_right, repeat(self.input_bounds), addresses), repeat(1))):
            return tensors
        storages = [storage_id(static) for static in self.static_inputs]
        own = list(map(storage_id, tensors))
        copied = [
            tensor.clone() if own[index] in storages and own[index] != storages[index] else tensor
            for index, tensor in enumerate(tensors)
        ]
        return CallTensors.of(copied, tensors.parts) if isinstance(tensors, CallTensors) else copied

    def _reaches_parts(self, tensors: Any) -> bool:
        """Return whether the function also reaches a cache of the call without its arguments."""
        return not self.state_objects.isdisjoint(map(id, tensors.parts[: self.own_parts]))

    def replay_on(self, tensors: Sequence[Any], lengths: Mapping[int, int]) -> Any:
        """Replay on these tensors and return copies of the results, for verification."""
        with self.lock, torch.no_grad():
            self.ordering.wait_for_replays()
            self.ordering.wait_for_host_reads()
            self.copy_in(tensors)
            self.replay()
            self.ordering.mark_replay()
            owned = [tensor.clone() for tensor in self.outputs.current(lengths)]
            return self.outputs.assemble(owned, [static.clone() for static in self.static_inputs])

    def shares_memory(self, tensors: Sequence[Any]) -> bool:
        """Return whether a tensor that is written to shares memory with another one, and one of them is an argument.

        The static buffers share no memory with anything, so a replay would not change the other tensor.
        """
        return memory_conflict(tensors, self.written_arguments, *self.state_storages) is not None

    def record(self) -> GraphRecord:
        """Return the part of the report about this graph."""
        return GraphRecord(
            key=self.signature.parts,
            replays=self.stats.replays,
            nodes=self.graph.nodes,
            bytes=self.bytes,
            capture_ms=self.stats.capture_ms,
            relative_error=self.stats.relative_error,
            checks=self.stats.checks,
            mutates=self.mutates,
        )

    def close(self) -> None:
        """Free the graph and its buffers."""
        with self.lock:
            self.stats.closed = True
            self.graph.close()
            for objects in (self.buffers, self.static_inputs, self.identity_objects):
                objects.clear()


def memory_conflict(
    tensors: Sequence[Any], written: Sequence[int], state: frozenset[int], written_state: frozenset[int]
) -> int | None:
    """Return the index of an argument that shares memory with another argument or with state, where one of them is written to."""
    storages = [storage_id(tensor) for tensor in tensors]
    distinct = set(storages)
    if len(distinct) == len(storages) and distinct.isdisjoint(state):
        return None
    for index, storage in enumerate(storages):
        if storage in written_state or (index in written and (storage in state or storages.count(storage) > 1)):
            return index
    return None


@dataclass(frozen=True, kw_only=True)
class WriteEffects:
    """What the function writes to, and whether it draws random numbers."""

    arguments: tuple[int, ...]  # indices of the call's tensors
    state: tuple[tuple[str, Any], ...]  # (path, tensor)
    draws_random: bool

    @property
    def any(self) -> bool:
        """Whether a run changes anything."""
        return bool(self.arguments or self.state or self.draws_random)

    def storages(self, state_tensors: Iterable[Any]) -> tuple[frozenset[int], frozenset[int]]:
        """Return the storage ids of the tensors in the state: of all, and of the written ones."""
        return frozenset(map(storage_id, state_tensors)), frozenset(storage_id(tensor) for _, tensor in self.state)

    def paths(self, call: Call) -> tuple[str, ...]:
        """Return the paths of the written arguments and tensors."""
        return (*(call.tensors[index].path for index in self.arguments), *(path for path, _ in self.state))


def build_entry(  # noqa: PLR0913 - the parts of an entry
    *,
    call: Call,
    graph: Graph,
    buffers: list[Buffer],
    outputs: Outputs,
    captured_state: CapturedState,
    ordering: Ordering,
    effects: WriteEffects,
    output_mode: str = "clone",
    training: "TrainingStep | None" = None,
    constants: Sequence[Any] = (),
    undo_writes: Callable[[], None] | None = None,
    workarounds: tuple[Workaround, ...] = (),
    as_captured: Callable[[], AbstractContextManager[Any]] = reported_as_capturing,
) -> Entry:
    """Return an entry with everything prepared that a replay needs."""
    static_inputs = [buffer.tensor for buffer in buffers]
    copy_in = make_copy_in(buffers)
    make_result = make_result_function(outputs, output_mode)
    step: ReplayStep | None = training
    if training is None:
        requires_grad = torch.is_grad_enabled() and any(leaf.value.requires_grad for leaf in call.tensors)
        has_cpu_buffers = call.device.type != "cpu" and any(x.value.device.type == "cpu" for x in call.tensors)
        if requires_grad or has_cpu_buffers or effects.arguments:
            copy_and_replay = _make_copy_and_replay(
                graph, buffers, static_inputs, copy_in, ordering, effects.arguments, has_cpu_buffers=has_cpu_buffers
            )

            def step(tensors: Sequence[Any], lengths: Mapping[int, int]) -> Any:
                copy_and_replay(tensors)
                return make_result(tensors, lengths)

    return Entry(
        key=call.key,
        signature=call.signature,
        identity_objects=list(call.identity_objects),
        graph=graph,
        buffers=buffers,
        static_inputs=static_inputs,
        input_bounds=sorted(bound for buffer in buffers if buffer.memory.numel() for bound in _bounds(buffer.memory)),
        constants=constants,
        outputs=outputs,
        captured_state=captured_state,
        state_check=captured_state.quick_check,
        ordering=ordering,
        lock=ordering.lock,
        written_arguments=effects.arguments,
        written_state=effects.state,
        mutates=effects.paths(call),
        writes=bool(effects.arguments or effects.state),
        own_parts=call.own_parts,
        state_objects=captured_state.object_ids if call.own_parts else frozenset(),
        state_storages=effects.storages(captured_state.tensors),
        check_before_replay=bool(
            training
            or effects.arguments
            or call.own_parts
            or (effects.state and undo_writes is None)
            or effects.draws_random
        ),
        undo_writes=undo_writes,
        copy_in=copy_in,
        replay=graph.replay,
        make_result=make_result,
        step=step,
        training=training,
        workarounds=workarounds,
        as_captured=as_captured,
        stats=EntryStats(),
    )


def _bounds(memory: Any) -> tuple[int, int]:
    return memory.data_ptr(), memory.data_ptr() + memory.untyped_storage().nbytes()


def _make_copy_and_replay(
    graph: Graph,
    buffers: Sequence[Buffer],
    static_inputs: Sequence[Any],
    copy_in: CopyIn,
    ordering: Ordering,
    written_arguments: Sequence[int],
    *,
    has_cpu_buffers: bool,
) -> CopyIn:
    """Return a function that copies and replays, for calls with gradients, buffers in CPU memory or written arguments."""
    replay = graph.replay
    copy_many = foreach_copy()

    def copy_back(indices: Sequence[int], tensors: Sequence[Any]) -> None:
        # Torch allows writes to a tensor made in inference mode only in that mode.
        of_inference = {index for index in indices if tensors[index].is_inference()}
        for group, mode in ((of_inference, True), (set(indices) - of_inference, torch.is_inference_mode_enabled())):
            plain = [index for index in group if buffers[index].plain]
            with torch.inference_mode(mode) if group else nullcontext():
                if plain:
                    copy_many([tensors[index] for index in plain], [buffers[index].memory for index in plain])
                for index in group.difference(plain):
                    buffers[index].copy_back(tensors[index])

    def copy_and_replay(tensors: Sequence[Any]) -> None:
        with torch.no_grad():
            if has_cpu_buffers:
                ordering.wait_for_host_reads()
            copy_in(tensors)
            replay()
            if has_cpu_buffers:
                ordering.mark_replay()
            copy_back([index for index in written_arguments if tensors[index] is not static_inputs[index]], tensors)

    return copy_and_replay
