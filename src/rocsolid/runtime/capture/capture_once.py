"""From a call to a verified graph: one eager run, warm-up, capture, and replays compared with eager.

The eager run is the result of the call. Whatever fails after it costs the caller nothing: tensors, random numbers and Python
values stay as that one run left them.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy

from rocsolid.errors import CompileInCaptureError, first_line
from rocsolid.model.capture_report import Reason, Workaround
from rocsolid.numerics import result_leaves
from rocsolid.runtime.capture.backends.base import Backend, Graph, Session
from rocsolid.runtime.capture.call import Call, CannotCapture, read_torch_state, spec_of
from rocsolid.runtime.capture.entry import Entry, WriteEffects, build_entry, memory_conflict
from rocsolid.runtime.capture.inputs import make_buffers
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.capture.outputs import Outputs
from rocsolid.runtime.capture.reachable_state import (
    Content,
    ExecutedCode,
    ReachableState,
    collect_reachable,
    record_executed_code,
    runs_compiled_code,
)
from rocsolid.runtime.capture.state_snapshot import (
    CapturedState,
    HostRngSnapshot,
    InitialState,
    LayoutSnapshot,
    RngSnapshot,
    Snapshot,
    TensorSnapshot,
    ValueDetector,
    WriteDetector,
    fresh_autocast_cache,
    restoring,
    small_tensors,
    tensors_to_save,
)
from rocsolid.runtime.capture.verification import Verifier
from rocsolid.torchapi.graphs.capture_state import (
    COMPILE_FIX,
    COMPILE_PROBLEM,
    compiles_refused,
    reported_as_capturing,
    reported_as_not_capturing,
    uncompiled,
)
from rocsolid.torchapi.private_api import AttributePatch
from rocsolid.torchapi.pytree import is_plain_object, open_container

Function = Callable[..., Any]
Search = Callable[..., Entry]  # see `WorkaroundSearch.capture`
_MAX_LISTED_CHANGES = 4


Scope = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """Modules that are not captured as they are: some run in eager, others in a variant that can be captured."""

    modules: Mapping[str, Any] = field(default_factory=dict)  # those that run in eager, by name
    variants: Mapping[str, tuple[Any, Callable[..., Any]]] = field(default_factory=dict)  # modules and their variants
    checks_reads: bool = False  # a value that Python reads is read again by each replay, and compared

    @contextmanager
    def modules_in(self, scope: Scope = nullcontext) -> Iterator[None]:
        """Run every call of a module that runs in eager inside `scope()`, where it is not told that it is being captured."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def forward(*args: Any, **kwargs: Any) -> Any:
                with reported_as_not_capturing(), scope():
                    return original(*args, **kwargs)

            return forward

        with patched_forwards((module, make) for module in self.modules.values()):
            yield

    def variants_in_use(self) -> AbstractContextManager[None]:
        """Return a context in which the variants are called."""
        return patched_forwards((module, partial(_instead, variant)) for module, variant in self.variants.values())


def _only_here(make: Callable[[Any], Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for this thread; others call the original."""
    thread, replacement = threading.get_ident(), make(original)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return (replacement if threading.get_ident() == thread else original)(*args, **kwargs)

    return forward


def _instead(variant: Callable[..., Any], _: Callable[..., Any]) -> Callable[..., Any]:
    return variant


@contextmanager
def patched_forwards(forwards: Iterable[tuple[Any, Callable[[Any], Any]]]) -> Iterator[None]:
    """Replace `forward` of these modules inside the block."""
    patches = [AttributePatch(module, "forward", partial(_only_here, make)) for module, make in forwards]
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.undo()


NOTHING_ASIDE: Final = SetAside()


class FirstRun:
    """The call, run in eager for the caller, and what the function was seen to do."""

    def __init__(self, function: Function, call: Call) -> None:
        state_before = collect_reachable(function, call.identity_arguments)
        unrestorable = [(c, c.read(c.value)) for c in state_before.contents if c.write is None]
        host_rng = HostRngSnapshot()
        torch_state = read_torch_state(())
        known_before = [ref for ref in state_before.tensors if not is_lazy(ref.value)]
        state_writes = WriteDetector((ref.path, ref.value) for ref in known_before)
        weights = [(ref.path, ref.value) for ref in known_before if isinstance(ref.value, torch.nn.Parameter)]
        hidden_writes = ValueDetector(weights)  # by kernels and through `.data`, which no version counter shows
        specs = [spec_of(leaf.value) for leaf in call.tensors]
        argument_writes = WriteDetector((leaf.path, leaf.value) for leaf in call.tensors)
        rng = RngSnapshot(call.device, state_before.generators)
        self.buffers = make_buffers(call)  # copied before the function writes to its arguments
        values_before, layouts_before = Snapshot(state_before), LayoutSnapshot(state_before)
        try:
            tensors_before = TensorSnapshot(small_tensors(state_before))
        except torch.OutOfMemoryError:  # the caller's run may need less
            tensors_before = TensorSnapshot(())
        # The call is not padded here: a compiled function would be compiled for a length that is never used again.
        with uncompiled() if call.bucketed else nullcontext():
            self.result = function(*call.args, **call.kwargs)
        self.growing = call.growing_cache()
        draws_random = rng.advanced()
        self.changed_torch_state = [
            name for (name, now), (_, old) in zip(read_torch_state(()), torch_state, strict=False) if now != old
        ]
        self.host_rng = host_rng.drawn_from()
        self.advanced = [content for content, before in unrestorable if _was_advanced(content, before)]
        self.changed_arguments = call.changed_arguments()
        self.changed_arguments += [
            leaf.path for leaf, spec in zip(call.tensors, specs, strict=True) if spec_of(leaf.value) != spec
        ]
        # Unless the first run set something up in Python, the next one can repeat it: from the same tensors, with the same result.
        is_repeatable = not values_before.changes() and not layouts_before.changed_paths()
        self.tensors_before = tensors_before if is_repeatable else TensorSnapshot(())
        self.state = collect_reachable(function, call.identity_arguments)
        self.traces: list[Path] = []  # written by `annotate=`
        self.constants: list[Any] = []  # after the capture: tensors made from Python numbers, which the graph reads
        self.runs_compiled_code = False  # after the warm-up: whether a compiled function was called
        self.state_to_watch = self.state  # after the warm-up: what the executed functions reach
        known = {id(ref.value) for ref in known_before}
        created = [(ref.path, ref.value) for ref in self.state.tensors if id(ref.value) not in known]
        written_state = list(
            {id(t): (path, t) for path, t in (*state_writes.written(), *hidden_writes.written())}.values()
        )
        self.may_change = [*written_state, *created]
        written_paths = {path for path, _ in argument_writes.written()}
        written_paths |= {
            leaf.path
            for leaf, buffer in zip(call.tensors, self.buffers, strict=True)
            if not self.changed_arguments and not call.bucketed and not torch.equal(buffer.tensor, leaf.value)
        }
        self.effects = WriteEffects(
            arguments=tuple(index for index, leaf in enumerate(call.tensors) if leaf.path in written_paths),
            state=tuple(written_state),
            draws_random=draws_random,
        )


def _was_advanced(content: Content, before: Any) -> bool:
    """Return whether an iterator or a random number generator was advanced.

    A cache of `functools.lru_cache` may grow in the first run: later runs find the value in it.
    """
    can_advance = hasattr(content.value, "__next__") or not content.watched
    return can_advance and content.read(content.value) != before


def capture_once(
    function: Function,
    call: Call,
    first: FirstRun,
    options: Options,
    backend: Backend,
    owner: Any,
    search: Search,
) -> Entry:
    """Capture the call and return a verified entry. Raises CannotCapture when the call cannot be captured."""
    with_backward = options.backward and _path_requiring_grad(first.result) != ""
    _refuse_unrepeatable(first, call, with_backward=with_backward)
    started = time.perf_counter()
    static_inputs = [buffer.tensor for buffer in first.buffers]
    final = InitialState(
        tensors=TensorSnapshot(tensors_to_save(first.state, first.may_change)),
        rng=RngSnapshot(call.device, (*options.generators, *first.state.generators)),
        inputs=TensorSnapshot([static_inputs[index] for index in first.effects.arguments]),
    )
    # A function that appends to a buffer may have filled it: a run that starts behind its end would end all use of the GPU.
    initial = replace(final, tensors=final.tensors.updated(first.tensors_before))
    with restoring(Snapshot(first.state), LayoutSnapshot(first.state), final):
        if with_backward:
            from rocsolid.runtime.capture.training import capture_training_step

            entry = capture_training_step(function, call, first, initial, options, backend, owner)
        else:
            entry = _capture_inference(function, call, first, initial, options, backend, owner, search)
    entry.stats.record_capture((time.perf_counter() - started) * 1e3)
    return entry


def _capture_inference(
    function: Function,
    call: Call,
    first: FirstRun,
    initial: InitialState,
    options: Options,
    backend: Backend,
    owner: Any,
    search: Search,
) -> Entry:
    inputs = [buffer.tensor for buffer in first.buffers]
    with backend.capture_scope(), reported_as_capturing(), backend.warm_up_scope():
        warm_up(partial(call.run, function, inputs), first, initial, options.warmups)

    before, layouts = Snapshot(first.state), LayoutSnapshot(first.state)

    def attempt(aside: SetAside = NOTHING_ASIDE, workarounds: Sequence[Workaround] = ()) -> Entry:
        with removed_after_error(first.traces):
            return capture_and_verify(aside, workarounds)

    def capture_and_verify(aside: SetAside, workarounds: Sequence[Workaround]) -> Entry:
        before.restore()  # an attempt before this one may have failed in the middle
        layouts.restore()
        with backend.capture_scope(), reported_as_capturing():
            graph, result = _capture(function, call, first, initial, options, backend, aside)
        try:
            static_inputs = [buffer.tensor for buffer in first.buffers]
            state_tensors = [ref.value for ref in first.state.tensors]
            outputs = Outputs.of(result, static_inputs, state_tensors, {dim.tensor for dim in call.bucketed})
            if call.bucketed and options.unpad == "auto":
                from rocsolid.runtime.capture.padding import find_length_relations

                outputs = replace(
                    outputs, relations=find_length_relations(function, call, outputs, static_inputs, initial)
                )
            entry = build_entry(
                call=call,
                graph=graph,
                buffers=first.buffers,
                outputs=outputs,
                captured_state=CapturedState(first.state_to_watch, call.device, owner),
                ordering=backend.ordering(),
                effects=first.effects,
                output_mode=options.outputs,
                constants=first.constants,
                undo_writes=options.undo_writes,
                workarounds=tuple(workarounds),
                as_captured=partial(_as_captured, aside),
            )
            Verifier(function, call, options, initial).verify(entry)
        except BaseException:
            graph.close()
            raise
        return entry

    return search(function, attempt, lambda: first.runs_compiled_code)


@contextmanager
def _as_captured(aside: SetAside) -> Iterator[None]:
    """Run the function in eager as it was captured: torch says in it that a capture is running, except in the modules that run in eager."""
    with reported_as_capturing(), aside.modules_in(), aside.variants_in_use():
        yield


def _path_requiring_grad(result: Any) -> str:
    """Return the path of the first result that requires grad; empty when none does."""
    return next(
        (x.path for x in result_leaves(result) if isinstance(x.value, torch.Tensor) and x.value.requires_grad), ""
    )


def _refuse_unrepeatable(first: FirstRun, call: Call, *, with_backward: bool) -> None:
    """Raise CannotCapture for a call whose effect no replay can repeat."""
    path = _path_requiring_grad(first.result)
    if path and not with_backward:
        raise CannotCapture(
            Reason.GRADIENT,
            f"`{path}` requires grad, and a replay would return it without a grad_fn",
            fix="call it under torch.no_grad() or torch.inference_mode(), or capture with backward=True",
        )
    if first.state.unwatchable:
        raise CannotCapture(
            Reason.REACHABLE_STATE,
            f"the function reaches {first.state.unwatchable}; that cannot be checked for changes at each replay",
            fix="pass what the function needs as an argument, and keep the rest where the function does not reach it",
        )
    if first.host_rng:
        raise CannotCapture(
            Reason.SIDE_EFFECT,
            f"the function draws random numbers from Python's `{first.host_rng}`, and a replay would not draw new ones",
            fix="use torch.rand, torch.randn or torch.randint",
        )
    if first.changed_torch_state:
        names = ", ".join(first.changed_torch_state)
        raise CannotCapture(
            Reason.SIDE_EFFECT,
            f"the function changes torch's state ({names}), and a replay does not repeat that",
            fix="change it outside the captured function, or only inside a `with` block",
        )
    if first.advanced:
        path, kind = first.advanced[0].path, type(first.advanced[0].value).__name__
        raise CannotCapture(
            Reason.SIDE_EFFECT,
            f"the function advances `{path}`, a {kind}, and a replay does not repeat that",
            fix="call next() outside the captured function and pass the value as an argument",
        )
    if first.changed_arguments:
        _refuse_side_effects(first.changed_arguments)
    if first.growing:
        raise CannotCapture(
            Reason.ARGUMENT,
            f"the cache `{first.growing}` has another size or number after each call, and a graph has fixed ones",
            fix='pass a StaticCache, or sizes for its length, as in buckets={"past_key_values": rs.Bucket(dim=2, sizes=[256])}; '
            "for model.generate(...), use rs.optimize(model)",
        )
    held = {id(value): path for path, value in first.state.objects}
    shared = next((held[id(part)] for part in call.parts[: call.own_parts] if id(part) in held), None)
    if call.own_parts and (with_backward or shared is not None):
        problem = f"`{shared}` is also an argument" if shared is not None else "a cache is an argument"
        raise CannotCapture(Reason.ARGUMENT, f"{problem}, and a replay would change only one of both")
    _refuse_kept_container(first.result, "result", first.state, set(map(id, call.parts)))
    state_storages = first.effects.storages(ref.value for ref in first.state.tensors)
    index = memory_conflict([leaf.value for leaf in call.tensors], first.effects.arguments, *state_storages)
    if index is not None and call.tensors[index].value.numel():
        path = call.tensors[index].path
        problem = (
            f"argument `{path}` shares memory with another tensor that the function uses, and one of them is written to"
        )
        raise CannotCapture(Reason.SHARED_MEMORY, problem, fix=f"pass {path}.clone()")


def _refuse_kept_container(value: Any, path: str, state: ReachableState, parts: set[int]) -> None:
    """Raise CannotCapture when a list or dictionary of the result is one that the function keeps, which a replay would copy.

    `parts` has the ids of what the caches among the arguments consist of: a replay returns the caller's own.
    """
    if id(value) in parts:
        return
    kept = {id(watched.items): watched.path for watched in state.dicts}
    kept.update({id(sequence): name for name, sequence in state.sequences})
    if is_plain_object(value) and id(vars(value)) in kept:
        problem = f"`{path}` is a {type(value).__name__} that the function keeps, and a replay would return a copy"
        raise CannotCapture(Reason.RESULT_TYPE, problem, fix="return its tensors, or a copy of it")
    if id(value) in kept:
        problem = f"`{path}` is the {type(value).__name__} `{kept[id(value)]}` itself, and a replay would return a copy"
        raise CannotCapture(Reason.RESULT_TYPE, problem, fix=f"return {type(value).__name__}(...) of it")
    spec = open_container(value)
    if spec is not None:
        for child, step in zip(spec.values, spec.steps, strict=True):
            _refuse_kept_container(child, path + step, state, parts)
    elif is_plain_object(value):
        for name, child in vars(value).items():
            _refuse_kept_container(child, f"{path}.{name}", state, parts)


def _capture(
    function: Function,
    call: Call,
    first: FirstRun,
    initial: InitialState,
    options: Options,
    backend: Backend,
    aside: SetAside,
) -> tuple[Graph, Any]:
    from rocsolid.runtime.capture.host_data import ConstantRecorder, ConstantServer

    inputs = [buffer.tensor for buffer in first.buffers]

    def body() -> Any:
        with aside.variants_in_use():
            return call.run(function, inputs)

    with backend.warm_up_scope():
        if aside.variants:
            warm_up(body, first, initial, runs=1)
        initial.restore()
        refuse_host_reads(body, call, first, initial, aside)
        recorder = ConstantRecorder(call.device)
        with restoring(Snapshot(first.state), LayoutSnapshot(first.state), initial), aside.modules_in(recorder.paused):
            executed = _executed_code(body, recorder)
    server = ConstantServer(call.device, recorder.constants)
    first.runs_compiled_code = executed is not None and runs_compiled_code(executed)
    first.state_to_watch = collect_reachable(function, call.identity_arguments, executed)
    missing = backend.missing_memory(sum(buffer.memory.nbytes for buffer in first.buffers))
    if missing:
        raise CannotCapture(
            Reason.OUT_OF_MEMORY, missing, fix="capture fewer graphs (max_graphs=), or free GPU memory first"
        )
    session = new_session(function, first, options, backend)
    # With the mode, compiled code would be compiled again; it has its constants on the device.
    with_constants = recorder.constants and executed is not None and not first.runs_compiled_code

    @contextmanager
    def outside() -> Iterator[None]:
        with backend.warm_up_scope(), reported_as_not_capturing(), server.paused():
            yield

    def record_graphs() -> tuple[Graph, Any]:
        if not (aside.modules or aside.checks_reads):
            session.begin()
            result = body()
            return session.end(), result
        from rocsolid.runtime.capture.eager_segments import capture_segments

        save_state = partial(_written_state, call, first, options) if first.effects.any else None
        return capture_segments(
            session, body, aside.modules, save_state, outside, first.state, segments, checks_reads=aside.checks_reads
        )

    def record() -> tuple[Graph, Any]:
        with server if with_constants else nullcontext():
            graph, result = record_graphs()
        if server.refusal:  # the function caught the exception
            graph.close()
            raise server.refusal
        first.constants = [constant.tensor for constant in recorder.constants]
        return graph, result

    again = ConstantServer(call.device, recorder.constants)
    segments: list[Graph] = []
    with _closed_after_error(segments):
        graph, result = run_capture(
            record, session, backend, initial, _served(body, again, aside) if with_constants else body, aside
        )
    if graph.nodes == 0:
        graph.close()
        raise CannotCapture(Reason.NO_GPU_WORK, "the call launches no work that a graph could replay")
    return graph, result


def _served(body: Callable[[], Any], server: Any, aside: SetAside) -> Callable[[], Any]:
    """Return the call as the capture runs it, to find out what has failed: making the constants would wait, too."""

    def run() -> Any:
        with aside.modules_in(server.paused), server:
            return body()

    return run


@contextmanager
def removed_after_error(files: list[Path]) -> Iterator[None]:
    """Remove the traces of a capture that is refused."""
    try:
        yield
    except BaseException:
        while files:
            with suppress(OSError):
                files.pop().unlink()
        raise


@contextmanager
def _closed_after_error(graphs: Sequence[Graph]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for graph in graphs:
            graph.close()
        raise


def _written_state(call: Call, first: FirstRun, options: Options) -> InitialState:
    """Save everything that a replay changes."""
    return InitialState(
        tensors=TensorSnapshot([tensor for _, tensor in first.effects.state]),
        rng=RngSnapshot(call.device, (*options.generators, *first.state.generators)),
        inputs=TensorSnapshot([first.buffers[index].tensor for index in first.effects.arguments]),
    )


def refuse_host_reads(
    body: Callable[[], Any], call: Call, first: FirstRun, initial: InitialState, aside: SetAside = NOTHING_ASIDE
) -> None:
    """Raise CannotCapture if the call is on a GPU and reads the values of an argument on the CPU."""
    if call.device.type == "cpu" or all(leaf.value.device.type != "cpu" for leaf in call.tensors):
        return
    from rocsolid.runtime.capture.host_data import find_host_read

    arguments = {leaf.path: buffer.tensor for leaf, buffer in zip(call.tensors, first.buffers, strict=True)}
    with restoring(Snapshot(first.state), LayoutSnapshot(first.state), initial):
        refusal = find_host_read(body, arguments, call.device, aside)
    if refusal is not None:
        raise refusal


def _executed_code(body: Callable[[], Any], recorder: AbstractContextManager[Any]) -> ExecutedCode | None:
    """Run the call once more, in eager because compiled code does not show what was compiled, and return which functions it executes."""
    try:
        with uncompiled(), recorder:
            return record_executed_code(body)
    except Exception:  # noqa: BLE001 - in eager it may need more memory, for example; then every reachable function is watched
        return None


def new_session(function: Function, first: FirstRun, options: Options, backend: Backend) -> Session:
    """Return a new capture, which is also traced with `annotate=`."""
    session = backend.new_session((*options.generators, *first.state.generators))
    if not options.annotate:
        return session
    from rocsolid.runtime.capture.annotation import annotated

    return annotated(session, options.annotate, function, first.traces, uses_gpu=backend.uses_gpu)


def run_capture(
    record: Callable[[], Any],
    session: Session,
    backend: Backend,
    initial: InitialState,
    body: Callable[[], Any],
    aside: SetAside = NOTHING_ASIDE,
) -> Any:
    """Run a capture. After a failure, clean up and raise a CannotCapture that names the operation and the user's line."""
    try:
        with fresh_autocast_cache():
            return record()
    except CannotCapture:
        session.abort()
        raise
    except Exception as error:
        from rocsolid.runtime.capture.diagnosis import explain_failure

        session.abort()
        initial.restore()
        raise explain_failure(error, backend, body, aside) from error


def warm_up(body: Callable[[], Any], first: FirstRun, initial: InitialState, runs: int) -> None:
    """Run the function so that everything that happens only once happens before the capture.

    Raises CannotCapture for a change of Python values, and for a compile in the last run.
    """
    before, layouts = Snapshot(first.state), LayoutSnapshot(first.state)
    for run in range(runs):
        initial.restore()
        try:
            with compiles_refused(if_any=True) if 0 < run == runs - 1 else nullcontext():
                body()
        except CompileInCaptureError as error:
            from rocsolid.runtime.capture.diagnosis import innermost_error
            from rocsolid.torchapi.user_frames import traceback_code_line

            code = traceback_code_line(innermost_error(error).__traceback__)
            raise CannotCapture(Reason.COMPILE, COMPILE_PROBLEM, fix=COMPILE_FIX, code=code) from error
        except CannotCapture:
            raise
        except Exception as error:
            refusal = _failed_run(error)
            raise refusal from error
        if run == 0:
            changed = [*(change.path for change in before.changes()), *layouts.changed_paths()]
            _refuse_side_effects(list(dict.fromkeys(changed)))


def _failed_run(error: Exception) -> CannotCapture:
    """Return the refusal of a call whose first run succeeded, and that raises when it is run again."""
    from rocsolid.torchapi.user_frames import traceback_code_line

    code = traceback_code_line(error.__traceback__)
    problem = f"a second run of the function raised {type(error).__name__}: {first_line(error)}"
    return CannotCapture(Reason.ERROR, problem, code=code)


def _refuse_side_effects(changed: Sequence[str]) -> None:
    if changed:
        names = ", ".join(f"`{path}`" for path in changed[:_MAX_LISTED_CHANGES])
        hidden = len(changed) - _MAX_LISTED_CHANGES
        more = f" and {hidden} more" if hidden > 0 else ""
        raise CannotCapture(
            Reason.SIDE_EFFECT,
            f"the function changes {names}{more} in Python, and a replay does not repeat that",
            fix="keep the value in a tensor and update it in place (`self.count.add_(1)`), return it, "
            "or change it outside the captured function",
        )
