"""Captures forward and backward as two graphs and connects them to the caller's autograd, so that training steps replay.

The forward graph leaves what the backward graph needs in fixed memory. So the backward of a call must run before the next call
with the same key; a later backward raises CaptureError.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch

from rocsolid.errors import CaptureError
from rocsolid.numerics import Comparison, Tolerance, compare, noise_between, result_leaves
from rocsolid.runtime.capture.backends.base import Backend, Graph, Ordering
from rocsolid.runtime.capture.call import Call
from rocsolid.runtime.capture.capture_once import FirstRun, new_session, refuse_host_reads, run_capture, warm_up
from rocsolid.runtime.capture.entry import Entry, build_entry
from rocsolid.runtime.capture.inputs import Buffer, make_copy_in
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.capture.outputs import Outputs
from rocsolid.runtime.capture.reachable_state import ReachableState
from rocsolid.runtime.capture.state_snapshot import CapturedState, InitialState, RngSnapshot, TensorSnapshot
from rocsolid.runtime.capture.verification import padded_copies, refuse_wrong_result, vary_input
from rocsolid.torchapi.graphs.capture_state import reported_as_capturing
from rocsolid.torchapi.pytree import Leaf, flatten_result

Function = Callable[..., Any]
_SEED = 0x5EED
_LATE_BACKWARD = (
    "backward() of a captured call ran after a later call, which has overwritten the saved activations\n"
    "fix: call backward() before the next call of the captured function, or capture with backward=False"
)
_DOUBLE_BACKWARD = (
    "backward() of a captured call was called with create_graph=True, and a captured backward pass has no gradients of its own\n"
    "fix: capture with backward=False, or compute this loss without the captured function"
)
_BACKWARD_AFTER_CLOSE = (
    "backward() of a captured call ran after its graph was invalidated, evicted or closed\n"
    "fix: call backward() before changing the model or closing the captured function"
)


class FixedPass:
    """Forward and backward of the function on fixed tensors."""

    def __init__(self, function: Function, call: Call, buffers: Sequence[Buffer], state: ReachableState) -> None:
        self.function = function
        self.inputs = [
            buffer.tensor.detach().requires_grad_(leaf.value.requires_grad)
            for buffer, leaf in zip(buffers, call.tensors, strict=True)
        ]
        self.parameters = _trained_parameters(state)
        self._aliases = self.alias_parameters()
        index_by_id = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        self._references = [(r, index_by_id[id(r.value)]) for r in state.tensors if id(r.value) in index_by_id]
        args, kwargs = call.rebuild(self.inputs)
        self._forward: Callable[[], Any] = lambda: function(*args, **kwargs)
        self.output_grads: list[Any] = []  # static gradients of the results
        self.input_grads: list[Any] = []  # static gradients of inputs and parameters, or None
        self.result: Any = None

    def forward(self) -> list[Any]:
        """Run the function and return the results that require grad."""
        with self.using(self._aliases):
            self.result = self._forward()
        return requiring_grad(self.result)

    def alias_parameters(self) -> list[Any]:
        """Return new parameters that share memory with the function's own."""
        return [_alias(parameter) for parameter in self.parameters]

    @contextmanager
    def using(self, aliases: Sequence[Any]) -> Iterator[None]:
        """Replace the function's parameters by these inside the block.

        Autograd runs the backward of a parameter on the stream of its earlier autograd graph while that is alive, and a captured
        backward would make that stream part of the capture. The parameter may also have hooks, which must run only in the caller's
        backward.
        """
        try:
            for reference, index in self._references:
                reference._replace(value=aliases[index]).restore()
            yield
        finally:
            for reference, _ in self._references:
                reference.restore()

    def backward(self, results: Sequence[Any]) -> None:
        """Compute the gradients of every input and parameter that requires grad."""
        wanted = [tensor for tensor in (*self.inputs, *self._aliases) if tensor.requires_grad]
        self.input_grads = list(torch.autograd.grad(results, wanted, self.output_grads, allow_unused=True))

    def both(self) -> None:
        """Run forward, then backward with ones as the gradients of the results."""
        results = self.forward()
        if len(self.output_grads) != len(results):
            self.output_grads = [torch.ones_like(result) for result in results]
        self.backward(results)


def _alias(parameter: Any) -> Any:
    alias = torch.nn.Parameter(parameter.detach())
    vars(alias).update(vars(parameter))
    return alias


def _trained_parameters(state: ReachableState) -> list[Any]:
    """Return the parameters that a function reaches and that require grad, each once."""
    found = [ref.value for ref in state.tensors if isinstance(ref.value, torch.nn.Parameter)]
    return [p for p in {id(p): p for p in found}.values() if p.requires_grad]


def requiring_grad(result: Any) -> list[Any]:
    """Return the tensors of a result that require grad."""
    leaves = flatten_result(result).leaves
    return [x.value for x in leaves if isinstance(x.value, torch.Tensor) and x.value.requires_grad]


class ForwardBackwardGraph:
    """The two graphs of a training step as one `Graph`; `replay` runs the forward pass."""

    def __init__(self, forward: Graph, backward: Graph) -> None:
        self._forward = forward
        self._backward = backward
        self.nodes = forward.nodes
        self.bytes = forward.bytes + backward.bytes
        self.replay = forward.replay
        self.replay_backward = backward.replay
        self.closed = False

    def close(self) -> None:
        """Free both graphs."""
        self.closed = True
        self._backward.close()
        self._forward.close()

    def dump(self, path: str) -> None:
        """Write each graph to a file of its own."""
        self._forward.dump(path)
        self._backward.dump(f"{path}.backward")


class TrainingStep:
    """Replays forward and backward as one autograd function: the replay step of an entry captured with `backward=True`."""

    def __init__(
        self,
        fixed: FixedPass,
        graph: ForwardBackwardGraph,
        buffers: Sequence[Buffer],
        outputs: Outputs,
        ordering: Ordering,
        written_arguments: Sequence[int],
    ) -> None:
        self.fixed = fixed
        self._graph = graph
        self._buffers = buffers
        self._copy_in = make_copy_in(buffers)
        self._outputs = outputs
        self._ordering = ordering
        self._written_arguments = written_arguments
        self.differentiable = [
            index
            for leaf, (kind, index) in zip(outputs.tree.leaves, outputs.plan, strict=True)
            if kind == "owned" and leaf.value.requires_grad
        ]
        tensors = (*fixed.inputs, *fixed.parameters)
        self._requires_grad = [index for index, tensor in enumerate(tensors) if tensor.requires_grad]
        self.generation = 0  # counts forward replays, to detect a backward that comes too late

    def __call__(self, tensors: Sequence[Any], lengths: Mapping[int, int]) -> Any:  # noqa: ARG002 - buckets are not supported
        """Replay the forward pass; the lock of the ordering must be held. The result requires grad."""
        return self.apply(tensors, self.fixed.parameters)

    def apply(self, tensors: Sequence[Any], parameters: Sequence[Any]) -> Any:
        """Replay the forward pass; a later backward adds the gradients of the parameters to `parameters`."""
        owned = _AutogradStep.apply(self, len(tensors), *tensors, *parameters)
        return self._outputs.assemble(owned, tensors)

    def replay_forward(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Copy the inputs in, replay, and return copies of the results. The lock must be held."""
        self._copy_in([tensor.detach() for tensor in tensors])
        self._graph.replay()
        self.generation += 1
        for index in self._written_arguments:
            self._buffers[index].copy_back(tensors[index])
        return tuple(tensor.clone() for tensor in self._outputs.owned)

    def replay_backward(self, generation: int, gradients: Sequence[Any]) -> list[Any]:
        """Replay the backward pass and return the gradients of inputs and parameters; None where there is none."""
        with self._ordering.lock:
            if self._graph.closed:
                raise CaptureError(_BACKWARD_AFTER_CLOSE)
            if generation != self.generation:
                raise CaptureError(_LATE_BACKWARD)
            for static, index in zip(self.fixed.output_grads, self.differentiable, strict=True):
                gradient = gradients[index]
                static.zero_() if gradient is None else static.copy_(gradient)
            self._graph.replay_backward()
            copies = iter([None if grad is None else grad.clone() for grad in self.fixed.input_grads])
            count = len(self.fixed.inputs) + len(self.fixed.parameters)
            return [next(copies) if index in self._requires_grad else None for index in range(count)]


class _AutogradStep(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, step: TrainingStep, count: int, *tensors: Any) -> tuple[Any, ...]:
        owned = step.replay_forward(tensors[:count])
        ctx.step, ctx.generation = step, step.generation
        ctx.mark_non_differentiable(*(t for index, t in enumerate(owned) if index not in step.differentiable))
        ctx.set_materialize_grads(False)
        return owned

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise CaptureError(_DOUBLE_BACKWARD)
        return None, None, *ctx.step.replay_backward(ctx.generation, gradients)


def capture_training_step(
    function: Function,
    call: Call,
    first: FirstRun,
    initial: InitialState,
    options: Options,
    backend: Backend,
    owner: Any,
) -> Entry:
    """Capture forward and backward and return a verified entry. Raises CannotCapture when the call cannot be captured."""
    fixed = FixedPass(function, call, first.buffers, first.state)
    with backend.capture_scope(), reported_as_capturing():
        graph = _warm_up_and_capture(fixed, call, first, initial, options, backend)
    try:
        outputs = Outputs.of(fixed.result, fixed.inputs, [ref.value for ref in first.state.tensors])
        ordering = backend.ordering()
        step = TrainingStep(fixed, graph, first.buffers, outputs, ordering, first.effects.arguments)
        entry = build_entry(
            call=call,
            graph=graph,
            buffers=first.buffers,
            outputs=outputs,
            captured_state=CapturedState(first.state.without_gradients(), call.device, owner),
            ordering=ordering,
            effects=first.effects,
            training=step,
        )
        for verify_round in range(options.verify.rounds):
            generator = torch.Generator(device=call.device).manual_seed(_SEED + verify_round)
            inputs = [vary_input(leaf.value, generator) for leaf in call.tensors]
            comparison = _compare(function, call, entry, inputs, initial, options.tolerance)
            refuse_wrong_result(comparison)
    except BaseException:
        graph.close()
        raise
    return entry


def _warm_up_and_capture(
    fixed: FixedPass,
    call: Call,
    first: FirstRun,
    initial: InitialState,
    options: Options,
    backend: Backend,
) -> ForwardBackwardGraph:
    warm_up(fixed.both, first, initial, options.warmups)
    initial.restore()
    refuse_host_reads(fixed.both, call, first, initial)
    session = new_session(fixed.function, first, options, backend)

    def record() -> ForwardBackwardGraph:
        session.begin()
        results = fixed.forward()
        forward = session.end()
        fixed.output_grads = [torch.ones_like(result) for result in results]
        session.begin()
        fixed.backward(results)
        return ForwardBackwardGraph(forward, session.end())

    graph: ForwardBackwardGraph = run_capture(record, session, backend, initial, fixed.both)
    return graph


def check_training_step(
    function: Function, entry: Entry, call: Call, tolerance: Tolerance, generators: Sequence[Any]
) -> tuple[Any, Comparison]:
    """Run a call in eager and compare a replay of forward and backward with it. Returns eager's result and the comparison."""
    initial = InitialState(
        tensors=TensorSnapshot([tensor for _, tensor in entry.written_state]),
        rng=RngSnapshot(call.device, generators),
        inputs=TensorSnapshot([]),
    )
    tensors = [leaf.value for leaf in call.tensors]
    comparison = _compare(function, call, entry, tensors, initial, tolerance)
    initial.restore()
    return function(*call.args, **call.kwargs), comparison


def _compare(
    function: Function,
    call: Call,
    entry: Entry,
    inputs: Sequence[Any],
    initial: InitialState,
    tolerance: Tolerance,
) -> Comparison:
    """Compare results, gradients, written state and written arguments of a replay with eager's."""
    step: TrainingStep = cast("TrainingStep", entry.training)

    def run(forward: Callable[[Sequence[Any], Sequence[Any]], Any]) -> list[Leaf]:
        tensors = padded_copies(call, inputs)
        aliases = step.fixed.alias_parameters()
        initial.restore()
        with entry.lock:
            result = forward(tensors, aliases)
        wanted = [tensor for tensor in (*tensors, *aliases) if tensor.requires_grad]
        results = requiring_grad(result)
        gradients = torch.autograd.grad(results, wanted, [torch.ones_like(r) for r in results], allow_unused=True)
        return [
            *(
                Leaf(x.path, x.value.detach() if isinstance(x.value, torch.Tensor) else x.value)
                for x in result_leaves(result)
            ),
            *(Leaf(f"gradient {index}", gradient) for index, gradient in enumerate(gradients)),
            *(Leaf(f"state `{path}`", tensor.detach().clone()) for path, tensor in entry.written_state),
            *(Leaf(f"argument {index}", tensors[index].detach()) for index in entry.written_arguments),
        ]

    def eager(tensors: Sequence[Any], aliases: Sequence[Any]) -> Any:
        args, kwargs = call.rebuild(tensors)
        with step.fixed.using(aliases), reported_as_capturing():
            return function(*args, **kwargs)

    def replay(tensors: Sequence[Any], aliases: Sequence[Any]) -> Any:
        entry.ordering.wait_for_replays()
        return step.apply(tensors, aliases)

    expected, got = run(eager), run(replay)
    comparison = compare(expected, got, tolerance)
    if not comparison.equal:
        comparison = compare(expected, got, tolerance, noise_between(expected, run(eager)))
    if not comparison.equal:
        inputs_before = tuple(Leaf(leaf.path, x.detach().clone()) for leaf, x in zip(call.tensors, inputs, strict=True))
        comparison = replace(comparison, inputs=inputs_before, expected=tuple(expected), got=tuple(got))
    entry.stats.record_check(comparison.error)
    return comparison
