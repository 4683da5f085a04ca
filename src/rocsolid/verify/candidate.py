"""Compares a candidate with eager and with the model in higher precision, over several sets of values and scales of the inputs."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import torch

from rocsolid.errors import first_line
from rocsolid.model.verify_report import Accuracy, FormCheck, LayerError, OutputCheck, TensorError
from rocsolid.numerics import (
    ErrorTable,
    Tolerance,
    detached_copy,
    eager_is_far_off,
    measure_error,
    result_leaves,
    spread_between,
)
from rocsolid.optimize.example_inputs import Example, ExampleRun
from rocsolid.reference import NoReference, has_drawn, random_state, run_in_higher_precision
from rocsolid.runtime.capture.captured import Captured, CapturedModule
from rocsolid.runtime.capture.reachable_state import collect_reachable
from rocsolid.torchapi.pytree import Leaf, flatten

_SEED: Final = 0x5EED
_MAX_LAYERS: Final = 500
_MASK_VALUES: Final = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Cases:
    """The inputs that are tried."""

    seeds: int = 3
    scales: Sequence[float] = (1.0, 16.0)


@dataclass(kw_only=True)
class _Case:
    """One set of inputs: what eager and the reference return for it."""

    example: Example
    seed: int
    scale: float
    eager: ExampleRun
    reference: Sequence[Leaf] | None = None
    rounding: Sequence[Leaf] | None = None
    spread: Sequence[TensorError] = ()


@dataclass
class Baseline:
    """Eager and the reference on every set of inputs, with what is to be reported about them."""

    model: Callable[..., Any]
    tolerance: Tolerance
    cases: list[_Case] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    reference_name: str = ""
    calls: int = 1
    draws_random: bool = False

    def check(self, form: str, candidate: Callable[..., Any]) -> FormCheck:
        """Compare a candidate with eager on every set of inputs."""
        table = ErrorTable(self.tolerance)
        state = _TensorState([self.model, candidate])
        notes: dict[str, None] = {}
        for case in self.cases:
            try:
                run = self.run(candidate, case.example, case.seed, state)
            except Exception as error:  # noqa: BLE001 - the candidate may fail in any way
                text = f"raises {type(error).__name__} where eager returns a result: {first_line(error)}"
                return FormCheck(form=form, outputs=(_failed(text, case.scale),), notes=tuple(notes))
            if run.written.keys() != case.eager.written.keys():
                outputs = (_failed("does not write to the same arguments as eager", case.scale),)
                return FormCheck(form=form, outputs=outputs, notes=tuple(notes))
            table.add(
                self._named(run),
                self._named(case.eager),
                case.reference,
                case.rounding,
                scale=case.scale,
                spread=case.spread,
            )
        return FormCheck(form=form, outputs=table.checks(), notes=tuple(notes))

    def run(
        self,
        function: Callable[..., Any],
        example: Example,
        seed: int,
        state: "_TensorState",
        *,
        in_eager: bool = False,
    ) -> ExampleRun:
        """Call a function as often as needed with one set of inputs and one seed, and restore what it changes."""

        def calls(*args: Any, **kwargs: Any) -> Any:
            return [detached_copy(function(*args, **kwargs)) for _ in range(self.calls)]

        torch.manual_seed(seed)
        try:
            with _in_eager() if in_eager else nullcontext():
                return example.run(calls)
        finally:
            state.restore()

    def run_wide(
        self, example: Example, seed: int, eager: ExampleRun, state: "_TensorState", round_to: Any = None
    ) -> Sequence[Leaf] | NoReference:
        """Do the same as `run` in higher precision."""

        def calls(*args: Any, **kwargs: Any) -> Any:
            return [self.model(*args, **kwargs) for _ in range(self.calls)]

        torch.manual_seed(seed)
        try:
            with _in_eager():
                return example.run_reference(calls, eager.written, round_to=round_to)
        finally:
            state.restore()

    def _named(self, run: ExampleRun) -> list[Leaf]:
        """Return the results with paths as the user would write them."""
        named = []
        for number, result in enumerate(run.result):
            suffix = " (second call)" if number else ""
            named += [Leaf(leaf.path + suffix, leaf.value) for leaf in result_leaves(result)]
        return [*named, *(Leaf(f"argument {index}", value) for index, value in run.written.items())]


def measure_baseline(
    model: Callable[..., Any], examples: Sequence[Example], cases: Cases, tolerance: Tolerance
) -> Baseline:
    """Run eager and the reference on every set of inputs. Eager runs twice on the first one, to find out whether it is deterministic."""
    baseline = Baseline(model, tolerance)
    state = _TensorState([model])
    generators = random_state()
    first = baseline.run(model, examples[0], 0, state, in_eager=True)
    baseline.draws_random = has_drawn([*_seeded_state(0), *generators[1:]])
    if baseline.draws_random:
        baseline.notes[
            "eager draws random numbers (is dropout left on?); eager and candidate run with the same seed"
        ] = None
    baseline.calls = 2 if baseline.draws_random or state.changed_once else 1
    for number, example in enumerate(examples):
        for scale in cases.scales:
            for seed in range(cases.seeds if scale == cases.scales[0] else max(1, cases.seeds - 1)):
                _add_case(baseline, _vary(example, seed, scale), seed, scale, state, deterministic=not (number or seed))
    del first
    return baseline


def _add_case(
    baseline: Baseline, example: Example, seed: int, scale: float, state: "_TensorState", *, deterministic: bool
) -> None:
    try:
        eager = baseline.run(baseline.model, example, seed, state, in_eager=True)
    except Exception as error:
        if not baseline.cases:
            raise
        baseline.notes[f"inputs x {scale:g}: skipped, eager raises {type(error).__name__}: {first_line(error)}"] = None
        return
    case = _Case(example=example, seed=seed, scale=scale, eager=eager)
    if deterministic:
        second = baseline.run(baseline.model, example, seed, state, in_eager=True)
        case.spread = spread_between(eager.leaves, second.leaves)
        if any(error.mismatched or error.special for error in case.spread):
            spread = max(error.relative_l2 for error in case.spread)
            baseline.notes[
                f"eager is not deterministic: two runs with the same inputs and seed differ by {spread:.1e} (relative L2); "
                "the limits are widened by that"
            ] = None
    elif baseline.cases:
        case.spread = baseline.cases[0].spread
    reference = baseline.run_wide(example, seed, eager, state)
    if isinstance(reference, NoReference):
        baseline.notes[f"no reference in higher precision: {reference.reason}"] = None
        baseline.reference_name = baseline.reference_name or "eager"
    else:
        case.reference = reference
        wide = [
            leaf.value.dtype
            for leaf in reference
            if isinstance(leaf.value, torch.Tensor) and leaf.value.is_floating_point()
        ]
        baseline.reference_name = (
            str(max(wide, key=lambda dtype: dtype.itemsize)).removeprefix("torch.") if wide else "eager"
        )
        rounding = baseline.run_wide(example, seed, eager, state, round_to=_precision(eager.leaves))
        case.rounding = None if isinstance(rounding, NoReference) else rounding
        if case.rounding is not None and eager_is_far_off(eager.leaves, reference, case.rounding):
            baseline.notes[
                "eager itself is further from the reference than rounding explains: one of its own kernels may be wrong"
            ] = None
    baseline.cases.append(case)


def _precision(leaves: Iterable[Leaf]) -> Any:
    """Return the least precise dtype of the results."""
    dtypes = [x.value.dtype for x in leaves if isinstance(x.value, torch.Tensor) and x.value.is_floating_point()]
    return max(dtypes, key=lambda dtype: float(torch.finfo(dtype).eps), default=torch.float32)


def _seeded_state(seed: int) -> list[Any]:
    """Return the state of the CPU generator after seeding."""
    return [torch.Generator().manual_seed(seed).get_state()]


def _vary(example: Example, seed: int, scale: float) -> Example:
    """Return the example with other values: moved and made smaller for another seed, multiplied by the scale.

    Integers may be indices and stay as they are; so do masks.
    """
    if seed == 0 and scale == 1.0:
        return example
    call = flatten((example.args, dict(example.kwargs)), "call")
    generator = torch.Generator().manual_seed(_SEED + seed)

    def varied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
            return value
        if isinstance(value, torch.nn.Parameter) or value.layout is not torch.strided:
            return value
        values = value.detach().float().flatten()
        if bool(((values == _MASK_VALUES[0]) | (values == _MASK_VALUES[1]) | torch.isinf(values)).all()):
            return value
        if seed:
            shift = int(torch.randint(1, values.numel() + 1, (1,), generator=generator, device="cpu"))
            noise = torch.rand(values.shape, generator=generator, device="cpu").to(values.device)
            values = values.roll(shift) * (0.5 + noise / 2)
        new = torch.empty_like(value)
        new.copy_((values * scale).reshape(value.shape))
        return new.requires_grad_(value.requires_grad)

    with torch.no_grad():
        args, kwargs = call.unflatten([varied(leaf.value) for leaf in call.leaves])
    return Example(args, kwargs)


class _TensorState:
    """The tensors that functions keep between calls, such as buffers, with their values."""

    def __init__(self, functions: Sequence[Any]) -> None:
        found = {}
        for given in functions:
            captured = isinstance(given, (Captured, CapturedModule))
            function = given.__rocsolid_function__ if captured else given
            with suppress(Exception):  # a function without readable state
                for ref in collect_reachable(function).tensors:
                    if not isinstance(ref.value, torch.nn.Parameter) and ref.value.layout is torch.strided:
                        found[id(ref.value)] = ref.value
        self._tensors = [(tensor, tensor.detach().clone()) for tensor in found.values() if tensor.device.type != "meta"]
        self.changed_once = False

    def restore(self) -> None:
        """Write the values back."""
        with torch.no_grad():
            for tensor, saved in self._tensors:
                if not torch.equal(tensor, saved):
                    self.changed_once = True
                    with torch.inference_mode(tensor.is_inference()):
                        tensor.copy_(saved)


def _in_eager() -> AbstractContextManager[None]:
    """Run functions in eager inside the block, also those that the model itself has compiled."""
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


def _failed(why: str, scale: float) -> OutputCheck:
    infinite = TensorError(relative_l2=float("inf"), largest=float("inf"), cosine=0.0)
    return OutputCheck(path="result", dtype="", verdict=Accuracy.WRONG, why=why, difference=infinite, scale=scale)


def layer_errors(model: Any, candidate: Any, example: Example) -> tuple[LayerError, ...]:
    """Return the error of each module's result against the reference, for eager and for a candidate with the same modules."""
    if not isinstance(model, torch.nn.Module) or sum(1 for _ in model.modules()) > _MAX_LAYERS:
        return ()
    state = _TensorState([model, candidate])
    eager = _module_results(model, lambda: example.run(model), state)
    wide = _module_results(model, lambda: run_in_higher_precision(model, example.args, example.kwargs), state)
    others: dict[str, Any] = {}
    if isinstance(candidate, torch.nn.Module) and not isinstance(candidate, CapturedModule) and candidate is not model:
        with suppress(Exception):  # it is wrong, and may fail
            others = _module_results(candidate, lambda: example.run(candidate), state)

    def error(found: Any, name: str) -> float | None:
        comparable = found is not None and found.shape == wide[name].shape
        return measure_error(found, wide[name], dtype=eager[name].dtype).relative_l2 if comparable else None

    return tuple(
        LayerError(layer=name, eager=error(result, name) or 0.0, candidate=error(others.get(name), name))
        for name, result in eager.items()
        if name in wide
    )


def _module_results(module: Any, call: Callable[[], object], state: "_TensorState") -> dict[str, Any]:
    """Call, and return the first floating-point result of each module inside."""
    found: dict[str, Any] = {}

    def hook(name: str) -> Callable[..., None]:
        def store(_module: Any, _args: Any, result: Any) -> None:
            tensors = (leaf.value for leaf in result_leaves(result) if isinstance(leaf.value, torch.Tensor))
            tensor = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
            if tensor is not None:
                found.setdefault(name, tensor.detach().clone())

        return store

    handles = [part.register_forward_hook(hook(name)) for name, part in module.named_modules() if name]
    torch.manual_seed(0)
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
        state.restore()
    return found


def with_culprit(check: FormCheck, baseline: Baseline, candidate: Callable[..., Any]) -> FormCheck:
    """Add the errors by layer and, for a wrong form, the first operator that is wrong, if torch can see its operators."""
    from rocsolid.verify.first_wrong_op import find_first_wrong_op

    worst = next((output for output in check.outputs if output.verdict is check.verdict), None)
    if worst is None or worst.verdict is not Accuracy.WRONG:
        return replace(check, layers=layer_errors(baseline.model, candidate, baseline.cases[0].example))
    cases = [case for case in baseline.cases if case.scale == worst.scale] or baseline.cases
    state = _TensorState([baseline.model, candidate])
    culprits = (
        find_first_wrong_op(
            partial(baseline.run, example=case.example, seed=case.seed, state=state), baseline.model, candidate
        )
        for case in cases
    )
    culprit = next((found for found in culprits if found is not None), None)
    return replace(check, culprit=culprit, layers=layer_errors(baseline.model, candidate, cases[0].example))
