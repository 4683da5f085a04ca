"""Forward and backward as two graphs, joined to the caller's autograd, so that training steps replay.

The forward graph leaves what the backward graph needs in fixed memory. So a call's backward must come before the next call
of the same kind; one that comes too late is told so.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from rocsolid.errors import CaptureError, CompileInCaptureError
from rocsolid.model.capture_report import Reason
from rocsolid.numerics import compare, noise_between, result_leaves
from rocsolid.runtime.capture.backend import Backend, Graph
from rocsolid.runtime.capture.call import Call, CannotCapture
from rocsolid.runtime.capture.checking import fresh_like, wrong_result
from rocsolid.runtime.capture.diagnosis import explained
from rocsolid.runtime.capture.entry import INSIDE, STALE, Entry
from rocsolid.runtime.capture.inputs import Buffer
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.capture.outputs import Outputs
from rocsolid.runtime.capture.stamp import Stamp
from rocsolid.runtime.capture.state import Stage, own_casts
from rocsolid.runtime.capture.surroundings import Sight
from rocsolid.torchapi.graphs.capture_state import compiles_refused, seen_as_capturing
from rocsolid.torchapi.pytree import Leaf, flatten

Function = Callable[..., Any]
_LATE = (
    "backward of a captured call came after a later call of the same kind, whose forward has overwritten what it needs: call "
    "backward first, or capture with backward=False"
)


class Pass:
    """Forward and backward over fixed tensors."""

    def __init__(self, function: Function, call: Call, buffers: Sequence[Buffer], sight: Sight) -> None:
        self.inputs = [
            buffer.tensor.detach().requires_grad_(leaf.value.requires_grad)
            for buffer, leaf in zip(buffers, call.tensors, strict=True)
        ]
        self.parameters = trained(sight)
        self.twins = self.new_twins()
        rank = {id(p): number for number, p in enumerate(self.parameters)}
        self._places = [(slot, rank[id(slot.value)]) for slot in sight.tensors if id(slot.value) in rank]
        args, kwargs = call.rebuilt(self.inputs)
        self._forward: Callable[[], Any] = lambda: function(*args, **kwargs)
        self.given: list[Any] = []  # gradients of the results
        self.made: list[Any] = []  # gradients of inputs and parameters, or None
        self.result: Any = None

    def forward(self) -> list[Any]:
        """Run the function; the results that carry a gradient."""
        with self.on_twins(self.twins):
            self.result = self._forward()
        return carrying(self.result)

    def new_twins(self) -> list[Any]:
        """Parameters of the same memory that nobody else knows."""
        return [_twin(parameter) for parameter in self.parameters]

    @contextmanager
    def on_twins(self, twins: Sequence[Any]) -> Iterator[None]:
        """Let the function find a twin of each parameter.

        A parameter that anybody still holds a gradient's graph of is tied to the stream that graph was made on, and a backward
        that is captured would drag that stream into the capture. It may have hooks, too, which are for the caller's backward.
        """
        try:
            for slot, number in self._places:
                slot._replace(value=twins[number]).put_back()
            yield
        finally:
            for slot, _ in self._places:
                slot.put_back()

    def backward(self, results: Sequence[Any]) -> None:
        """Gradients of every input and parameter that wants one."""
        wanted = [tensor for tensor in (*self.inputs, *self.twins) if tensor.requires_grad]
        self.made = list(torch.autograd.grad(results, wanted, self.given, allow_unused=True))

    def both(self) -> None:
        """Forward, then backward with gradients of one."""
        results = self.forward()
        if len(self.given) != len(results):
            self.given = [torch.ones_like(result) for result in results]
        self.backward(results)


def _twin(parameter: Any) -> Any:
    twin = torch.nn.Parameter(parameter.detach())
    vars(twin).update(vars(parameter))
    return twin


def trained(sight: Sight) -> list[Any]:
    """The parameters that a function reaches and that want gradients, each once."""
    found = [slot.value for slot in sight.tensors if isinstance(slot.value, torch.nn.Parameter)]
    return [p for p in {id(p): p for p in found}.values() if p.requires_grad]


def carrying(result: Any) -> list[Any]:
    """The tensors of a result that carry a gradient."""
    leaves = flatten(result, "result").leaves
    return [x.value for x in leaves if isinstance(x.value, torch.Tensor) and x.value.requires_grad]


class TrainingEntry(Entry):
    """A captured call with its backward."""

    def attach(self, steps: Pass, backward: Graph, numbers: Sequence[int]) -> None:
        """`numbers` are the owned results that carry a gradient."""
        self.backward_graph = backward
        self.steps = steps
        self.numbers = list(numbers)
        self.generation = 0
        self.trained = steps.parameters
        self._wanting = [n for n, tensor in enumerate((*steps.inputs, *steps.parameters)) if tensor.requires_grad]

    def run(self, tensors: Sequence[Any], lengths: Mapping[int, int], *, filled: bool = False) -> Any:  # noqa: ARG002
        """Answer a call with a result that carries a gradient."""
        if self.closed or not self.stamp.holds():
            return STALE
        if not self.ordering.before():
            return INSIDE
        owned = _Step.apply(self, len(tensors), *tensors, *self.trained)
        self.hits += 1
        return self.outputs.put_together(owned, tensors)

    def forward_replay(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Fill, replay, copy the results out."""
        with self.lock:
            self._fill([tensor.detach() for tensor in tensors])
            self.graph.replay()
            self.generation += 1
            for number in self.written:
                self.buffers[number].give_back(tensors[number])
            return tuple(tensor.clone() for tensor in self.outputs.owned)

    def backward_replay(self, generation: int, gradients: Sequence[Any]) -> list[Any]:
        """Gradients for inputs and parameters, None where there are none."""
        with self.lock:
            if generation != self.generation:
                raise CaptureError(_LATE)
            for static, number in zip(self.steps.given, self.numbers, strict=True):
                given = gradients[number]
                static.zero_() if given is None else static.copy_(given)
            self.backward_graph.replay()
            made = iter([None if gradient is None else gradient.clone() for gradient in self.steps.made])
            every = len(self.steps.inputs) + len(self.steps.parameters)
            return [next(made) if number in self._wanting else None for number in range(every)]

    @property
    def bytes(self) -> int:
        """Memory of both graphs."""
        return super().bytes + self.backward_graph.bytes

    def dump(self, path: str) -> None:
        """Write both graphs down, each in a file of its own."""
        super().dump(path)
        self.backward_graph.dump(f"{path}.backward")

    def close(self) -> None:
        """Give both graphs back."""
        self.backward_graph.close()
        super().close()


class _Step(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, entry: TrainingEntry, count: int, *tensors: Any) -> tuple[Any, ...]:
        owned = entry.forward_replay(tensors[:count])
        ctx.entry, ctx.generation = entry, entry.generation
        ctx.mark_non_differentiable(*(t for n, t in enumerate(owned) if n not in entry.numbers))
        ctx.set_materialize_grads(False)
        return owned

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return None, None, *ctx.entry.backward_replay(ctx.generation, gradients)


def make_training(
    function: Function,
    call: Call,
    buffers: Sequence[Buffer],
    sight: Sight,
    stage: Stage,
    options: Options,
    backend: Backend,
    owner: dict[str, Any] | None,
) -> TrainingEntry:
    """A checked entry with forward and backward; raises CannotCapture when there can be none."""
    started = time.perf_counter()
    steps = Pass(function, call, buffers, sight)
    with backend.section(), seen_as_capturing():
        forward, backward = _capture(steps, stage, options, backend)
    outputs = Outputs.of(steps.result, steps.inputs, [slot.value for slot in sight.tensors])
    entry = TrainingEntry(
        call=call,
        graph=forward,
        buffers=buffers,
        outputs=outputs,
        stamp=Stamp(sight.without_gradients(), owner),
        ordering=backend.ordering(),
    )
    leaves = outputs.tree.leaves
    numbers = [
        number
        for leaf, (kind, number) in zip(leaves, outputs.plan, strict=True)
        if kind == "owned" and leaf.value.requires_grad
    ]
    entry.attach(steps, backward, numbers)
    entry.early = True
    try:
        for _ in range(options.verify.rounds):
            _check(function, call, entry, stage, options)
    except BaseException:
        entry.close()
        raise
    entry.capture_ms = (time.perf_counter() - started) * 1e3
    return entry


def _capture(steps: Pass, stage: Stage, options: Options, backend: Backend) -> tuple[Graph, Graph]:
    for number in range(options.warmups):
        stage.reset()
        try:
            with compiles_refused(if_any=True) if 0 < number == options.warmups - 1 else nullcontext():
                steps.both()
        except CompileInCaptureError as error:
            raise CannotCapture(Reason.COMPILE, str(error)) from error
    stage.reset()
    session = backend.session(options.generators)
    try:
        with own_casts():
            session.begin()
            results = steps.forward()
            forward = session.end()
        steps.given = [torch.ones_like(result) for result in results]
        session.begin()
        steps.backward(results)
        return forward, session.end()
    except CannotCapture:
        session.abort()
        raise
    except Exception as error:
        session.abort()
        stage.reset()
        raise explained(error, backend, steps.both) from error


def _check(function: Function, call: Call, entry: TrainingEntry, stage: Stage, options: Options) -> None:
    random = torch.Generator(device=call.device).manual_seed(entry.checks + 0x5EED)
    inputs = [fresh_like(leaf.value, random) for leaf in call.tensors]
    args, kwargs = call.rebuilt(inputs)
    twins = entry.steps.new_twins()

    def gradients(result: Any) -> list[Leaf]:
        wanted = [tensor for tensor in (*inputs, *twins) if tensor.requires_grad]
        results = carrying(result)
        made = torch.autograd.grad(results, wanted, [torch.ones_like(r) for r in results], allow_unused=True)
        answers = [
            Leaf(x.path, x.value.detach() if isinstance(x.value, torch.Tensor) else x.value)
            for x in result_leaves(result)
        ]
        return [*answers, *(Leaf(f"gradient {number}", gradient) for number, gradient in enumerate(made))]

    def eager() -> list[Leaf]:
        stage.reset()
        with entry.steps.on_twins(twins), seen_as_capturing():
            result = function(*args, **kwargs)
        return gradients(result)

    truth = eager()
    stage.reset()
    entry.trained = twins
    got = gradients(entry.run(inputs, {}))
    entry.trained = entry.steps.parameters
    verdict = compare(truth, got, options.tolerance)
    if not verdict.equal:
        verdict = compare(truth, got, options.tolerance, noise_between(truth, eager()))
    entry.hits = 0
    entry.checks += 1
    entry.error = max(entry.error or 0.0, verdict.error)
    if not verdict.equal:
        raise wrong_result(verdict)
