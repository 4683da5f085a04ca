"""From a call to a checked graph: one eager run, warm-ups, the capture, and replays compared with eager.

The eager run is the call's own answer. Whatever comes after it may fail without the caller losing anything, and leaves the
caller's tensors, random numbers and Python values as that one run left them.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch

from rocsolid.errors import CompileInCaptureError
from rocsolid.model.capture_report import Reason
from rocsolid.numerics import result_leaves
from rocsolid.runtime.capture.backend import Backend, Graph
from rocsolid.runtime.capture.call import Call, CannotCapture
from rocsolid.runtime.capture.checking import Checker
from rocsolid.runtime.capture.diagnosis import explained
from rocsolid.runtime.capture.entry import Entry
from rocsolid.runtime.capture.inputs import buffers_for
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.capture.outputs import Outputs
from rocsolid.runtime.capture.padding import followed
from rocsolid.runtime.capture.pieces import captured_in_pieces
from rocsolid.runtime.capture.stamp import Stamp
from rocsolid.runtime.capture.state import RandomState, Stage, TensorState, Versions, kept, own_casts, worth_keeping
from rocsolid.runtime.capture.surroundings import look_around
from rocsolid.runtime.capture.training import carrying, make_training
from rocsolid.torchapi.graphs.capture_state import compiles_refused, seen_as_capturing, uncompiled

Function = Callable[..., Any]


class FirstRun:
    """The call, run eagerly for the caller, and what it was seen to do."""

    def __init__(self, function: Function, call: Call) -> None:
        before = look_around(function)
        reached = Versions((slot.path, slot.value) for slot in before.tensors)
        given = Versions((leaf.path, leaf.value) for leaf in call.tensors)
        random = RandomState(call.device, before.generators)
        self.buffers = buffers_for(call)  # before anything is written to
        # A length that is only met unpadded here would be compiled, and never used.
        with uncompiled() if call.lengths else nullcontext():
            self.result = function(*call.args, **call.kwargs)
        self.draws = random.advanced()
        self.sight = look_around(function)
        known = {id(slot.value) for slot in before.tensors}
        made = [(slot.path, slot.value) for slot in self.sight.tensors if id(slot.value) not in known]
        self.written = reached.written()
        self.may_change = [*self.written, *made]
        paths = {path for path, _ in given.written()}
        self.written_arguments = tuple(n for n, leaf in enumerate(call.tensors) if leaf.path in paths)


def make(
    function: Function, call: Call, first: FirstRun, options: Options, backend: Backend, owner: dict[str, Any] | None
) -> Entry:
    """A checked entry for the call; raises CannotCapture when there can be none."""
    trains = options.backward and bool(carrying(first.result))
    _refuse_what_no_replay_repeats(first, call, trains=trains)
    started = time.perf_counter()
    statics = [buffer.tensor for buffer in first.buffers]
    stage = Stage(
        tensors=TensorState(worth_keeping(first.sight, first.may_change)),
        random=RandomState(call.device, (*options.generators, *first.sight.generators)),
        inputs=TensorState([statics[number] for number in first.written_arguments]),
    )
    with kept(first.sight, stage):
        if trains:
            return make_training(function, call, first.buffers, first.sight, stage, options, backend, owner)
        with backend.section(), seen_as_capturing():
            graph, result = _capture(function, call, first, stage, options, backend)
        try:
            entry = _entry(call, first, graph, result, backend, owner)
            if call.lengths and options.unpad == "auto":
                entry.outputs.follows = followed(function, call, entry.outputs, statics, stage)
            Checker(function, call, options, stage).check(entry)
        except BaseException:
            graph.close()
            raise
    grad = torch.is_grad_enabled() and any(leaf.value.requires_grad for leaf in call.tensors)
    entry.hand_out(options.outputs, without_grad=grad)
    entry.capture_ms = (time.perf_counter() - started) * 1e3
    return entry


def _entry(
    call: Call, first: FirstRun, graph: Graph, result: Any, backend: Backend, owner: dict[str, Any] | None
) -> Entry:
    statics = [buffer.tensor for buffer in first.buffers]
    held = [slot.value for slot in first.sight.tensors]
    entry = Entry(
        call=call,
        graph=graph,
        buffers=first.buffers,
        outputs=Outputs.of(result, statics, held, {length.tensor for length in call.lengths}),
        stamp=Stamp(first.sight, owner),
        ordering=backend.ordering(),
    )
    entry.written = first.written_arguments
    entry.state = tuple(first.written)
    entry.mutates = (*(call.tensors[n].path for n in entry.written), *(path for path, _ in first.written))
    entry.early = bool(entry.mutates or first.draws)
    return entry


def _refuse_what_no_replay_repeats(first: FirstRun, call: Call, *, trains: bool) -> None:
    leaves = result_leaves(first.result)
    lost = next((x.path for x in leaves if isinstance(x.value, torch.Tensor) and x.value.requires_grad), None)
    if lost is not None and not trains:
        detail = (
            f"{lost} carries a gradient, and a replay would return it without: call under torch.no_grad() or "
            "torch.inference_mode(), or capture with backward=True"
        )
        raise CannotCapture(Reason.GRADIENT, detail)
    storages = [leaf.value.untyped_storage().data_ptr() for leaf in call.tensors]
    for number in first.written_arguments:
        if storages.count(storages[number]) > 1 and call.tensors[number].value.numel():
            detail = f"argument {call.tensors[number].path!r} is written to and shares memory with another argument"
            raise CannotCapture(Reason.SHARED_MEMORY, detail)


def _capture(
    function: Function, call: Call, first: FirstRun, stage: Stage, options: Options, backend: Backend
) -> tuple[Graph, Any]:
    """Warm up, then capture."""
    args, kwargs = call.rebuilt([buffer.tensor for buffer in first.buffers])

    def body() -> Any:
        return function(*args, **kwargs)

    with backend.warming():
        _warm_up(body, first, stage, options.warmups)
        stage.reset()
    missing = backend.room_for(sum(buffer.memory.nbytes for buffer in first.buffers))
    if missing:
        raise CannotCapture(Reason.MEMORY, missing)
    session = backend.session((*options.generators, *first.sight.generators))
    try:
        with own_casts():
            graph, result = captured_in_pieces(session, body, function, options.pieces)
    except CannotCapture:
        session.abort()
        raise
    except Exception as error:
        session.abort()
        stage.reset()
        raise explained(error, backend, body) from error
    if graph.nodes == 0:
        graph.close()
        raise CannotCapture(Reason.EMPTY, "the call does nothing that a graph could replay")
    return graph, result


def _warm_up(body: Callable[[], Any], first: FirstRun, stage: Stage, times: int) -> None:
    """Let everything that happens once happen now; notice what happens every time and would not in a replay."""
    for number in range(times):
        stage.reset()
        before = first.sight.fingerprint() if number == 0 else {}
        try:
            with compiles_refused(if_any=True) if 0 < number == times - 1 else nullcontext():
                body()
        except CompileInCaptureError as error:
            raise CannotCapture(Reason.COMPILE, str(error)) from error
        if before:
            _refuse_side_effects(before, first.sight.fingerprint())


def _refuse_side_effects(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    changed = [path for path in after if before.get(path) != after[path]]
    if changed:
        few = 4
        detail = (
            f"the function changes {', '.join(changed[:few])} in Python, which no replay repeats: keep it in a tensor that is "
            "written in place, return it, or move it out of the function"
        )
        raise CannotCapture(Reason.SIDE_EFFECT, detail)
