"""Runs a model in higher precision: the reference that decides whether eager or a candidate is more accurate.

Every operator gets its inputs widened to float64 (float32 if memory is short) and returns wide results, so the whole model computes in
higher precision without a copy of its weights: each weight is widened for the operator that uses it. Nothing of the model is changed:
writes go to wide copies of the tensors. Random numbers are drawn in the model's own precision, from the same generators, so the run has
the same random numbers as eager.
"""

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from rocsolid.errors import first_line
from rocsolid.model.verify_report import Accuracy, OutputCheck, TensorError
from rocsolid.numerics import MAX_ROUNDING_FACTOR, ErrorTable, Tolerance, measure_error, result_leaves
from rocsolid.torchapi.dispatch import DispatchMode, schema_of, written_arguments
from rocsolid.torchapi.graphs.capture_state import uncompiled
from rocsolid.torchapi.pytree import Leaf, flatten, leaves

_NARROW: Final = (torch.bfloat16, torch.float16, torch.float32)
_SEED: Final = 0x5EED
_ROUNDED_RUNS: Final = 3
_DTYPE_OF: Final = torch.Tensor.dtype.__get__
_operator_references: Final[dict[Any, Callable[..., Any]]] = {}  # by overload


def register_operator_reference(overload: Any, reference: Callable[..., Any]) -> None:
    """Use this function in place of an operator that has no kernel for wide tensors, such as a vendor's."""
    _operator_references[overload] = reference


def operator_references() -> Mapping[Any, Callable[..., Any]]:
    """Return the registered references of operators."""
    return _operator_references


@dataclass(frozen=True)
class ReferenceRun:
    """The result of a run in higher precision, and the wide copies of the tensors that it used."""

    leaves: tuple[Leaf, ...]
    dtype: torch.dtype
    notes: tuple[str, ...]
    _mode: "_HigherPrecision"

    def value_of(self, tensor: Any) -> Any:
        """Return what a tensor of the model or its arguments contains after the run, in higher precision."""
        return self._mode.widen(tensor)


@dataclass(frozen=True)
class NoReference:
    """Why a model cannot run in higher precision."""

    reason: str


def run_in_higher_precision(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    round_to: torch.dtype | None = None,
    seed: int = _SEED,
    on_run: Callable[[], Any] | None = None,
) -> ReferenceRun | NoReference:
    """Run the function in float64, or in float32 if memory is short. Generators are left as they were.

    With `round_to`, the result of every operator is rounded at random (`seed`) to that precision; this shows what rounding can do.
    `on_run` is called before each attempt, to restore the state of the model.
    """
    reason = ""
    devices = {x.device for x in leaves((list(args), dict(kwargs))) if isinstance(x, torch.Tensor) and x.is_cuda}
    with torch.random.fork_rng(sorted(device.index for device in devices if device.index is not None)):
        initial = _rng_states(devices)
        for wide in (torch.float64, torch.float32):
            _restore_rng(initial)
            if on_run is not None:
                on_run()
            mode = _HigherPrecision(wide, round_to, seed)
            try:
                return mode.run(function, args, kwargs)
            except Exception as error:  # noqa: BLE001 - a model may fail in any way; then there is no reference
                reason = f"{type(error).__name__}: {first_line(error)}"
                if not _out_of_memory(error):
                    break
            finally:
                mode.restore_generators()
    return NoReference(reason)


class _HigherPrecision(DispatchMode):
    """Runs every operator on widened tensors."""

    def __init__(self, wide: torch.dtype, round_to: torch.dtype | None, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._wide = wide
        self._narrow = tuple(dtype for dtype in _NARROW if torch.finfo(dtype).bits < torch.finfo(wide).bits)
        self._step = torch.finfo(round_to).eps if round_to is not None else 0.0
        self._copies: dict[int, tuple[Any, Any]] = {}  # id -> (tensor, wide copy)
        self._made: dict[int, weakref.ref[Any]] = {}
        self._model_dtype = torch.float32  # in which random numbers are drawn
        self._notes: dict[str, None] = {}
        self._generators: dict[int, tuple[Any, Any]] = {}  # id -> (generator, its state)
        self._noise: dict[torch.device, torch.Generator] = {}

    def run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> ReferenceRun:
        """Run the function on wide copies of its arguments."""
        call = flatten((tuple(args), dict(kwargs)), "call")
        floats = [
            x.value.dtype for x in call.leaves if isinstance(x.value, torch.Tensor) and x.value.dtype in self._narrow
        ]
        if isinstance(function, torch.nn.Module):
            floats += [p.dtype for p in function.parameters() if p.dtype in self._narrow]
        if floats:
            self._model_dtype = max(set(floats), key=floats.count)
        elif not any(isinstance(x.value, torch.Tensor) for x in call.leaves):
            msg = "no tensor is passed"
            raise TypeError(msg)
        with torch.inference_mode(False), torch.no_grad(), uncompiled():
            wide = [self._copy(x.value) if isinstance(x.value, torch.Tensor) else x.value for x in call.leaves]
            self._remember(wide)
            wide_args, wide_kwargs = call.unflatten(wide)
            with _WideTypes(self), self:
                result = function(*wide_args, **wide_kwargs)
        return ReferenceRun(result_leaves(result), self._wide, tuple(self._notes), self)

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator on widened tensors."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._remember(self._run_random(func, args, kwargs))
        written = written_arguments(func, args, kwargs)
        wide_args, wide_kwargs = self.map(args, written), self.map(kwargs, written)
        if func in _operator_references:
            with self:
                return _operator_references[func](*wide_args, **wide_kwargs)
        name = func.name()
        if name in ("aten::_softmax", "aten::_log_softmax"):
            wide_args = (*wide_args[:2], False)  # half_to_float
        try:
            result = func(*wide_args, **wide_kwargs)
        except (RuntimeError, NotImplementedError) as error:
            if _out_of_memory(error) or name.startswith(("aten::", "prims::")):
                raise
            self._notes[
                f"{name} ran in {self._model_dtype}: it has no kernel for {self._wide}".replace("torch.", "")
            ] = None
            result = self._run_narrow(func, args, kwargs)
        return self._remember(self._rounded(result) if self._step and not _is_view(func) else result)

    def wide_dtype(self, dtype: Any) -> Any:
        """Return the precision in which tensors of a dtype are computed."""
        return self._wide if dtype in self._narrow else dtype

    def map(self, value: Any, written: Sequence[Any] = ()) -> Any:
        """Widen the tensors and dtypes in an operator's arguments."""
        if isinstance(value, torch.Tensor):
            return self.widen(value, keep=any(value is tensor for tensor in written))
        if isinstance(value, torch.dtype):
            return self.wide_dtype(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.map(item, written) for item in value)
        return {name: self.map(item, written) for name, item in value.items()} if isinstance(value, dict) else value

    def widen(self, tensor: Any, *, keep: bool = False) -> Any:
        """Return the wide copy of a tensor. Copies of weights are kept only if they are written to.

        Tensors that do not need to be widened are copied too, so that writes, also through views, do not reach the model.
        """
        known = self._copies.get(id(tensor))
        if known is not None:
            return known[1]
        made = self._made.get(id(tensor))
        if made is not None and made() is tensor:
            return self._to_wide(tensor)
        if isinstance(tensor, torch.nn.Parameter) and not keep:
            return self._to_wide(tensor)
        return self._copy(tensor)

    def _remember(self, result: Any) -> Any:
        """Remember the tensors that an operator made: they belong to this run."""
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._made[id(tensor)] = weakref.ref(tensor)
        return result

    def _copy(self, tensor: Any) -> Any:
        wide = self._to_wide(tensor)
        if wide is tensor:
            wide = tensor.detach().clone()
        self._copies[id(tensor)] = (tensor, wide)
        return wide

    def _to_wide(self, tensor: Any) -> Any:
        if tensor.dtype is torch.complex64:
            return tensor.detach().to(torch.complex128)
        return tensor.detach().to(self._wide) if tensor.dtype in self._narrow else tensor

    def _run_random(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Draw random numbers as eager does: in the precision of the model, and from the same generator."""
        generator = kwargs.get("generator")
        if generator is not None:
            self._generators.setdefault(id(generator), (generator, generator.get_state()))
        if func.name() == "aten::native_dropout" and args[2]:
            ones = torch.ones_like(args[0], dtype=self._model_dtype)
            scaled, mask = func(ones, *args[1:], **kwargs)
            value = self.widen(args[0])
            return value * scaled.to(value.dtype), mask
        return self._run_narrow(func, args, kwargs)

    def _run_narrow(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator in the precision of the model; what it writes is copied to the wide tensors."""
        written = written_arguments(func, args, kwargs)
        copies: dict[int, tuple[Any, Any]] = {}

        def narrow(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                wide = self.widen(value, keep=any(value is tensor for tensor in written))
                if id(wide) not in copies:
                    copies[id(wide)] = (
                        wide,
                        wide.to(self._model_dtype, copy=True) if wide.dtype is self._wide else wide,
                    )
                return copies[id(wide)][1]
            if isinstance(value, (list, tuple)):
                return type(value)(narrow(item) for item in value)
            return value

        result = func(*narrow(args), **{name: narrow(value) for name, value in kwargs.items()})
        for wide, copy in copies.values():
            if wide is not copy and written:
                wide.copy_(copy)
        by_copy = {id(copy): wide for wide, copy in copies.values()}

        def widened(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return by_copy.get(id(value), self._to_wide(value))
            return type(value)(widened(item) for item in value) if isinstance(value, (list, tuple)) else value

        return widened(result)

    def _rounded(self, result: Any) -> Any:
        """Multiply every value by a random factor as close to 1 as rounding would leave it."""
        if isinstance(result, (list, tuple)):
            return type(result)(self._rounded(item) for item in result)
        if not isinstance(result, torch.Tensor) or result.dtype is not self._wide or not result.numel():
            return result
        if result.device not in self._noise:
            self._noise[result.device] = torch.Generator(result.device).manual_seed(self._seed)
        noise = torch.rand(result.shape, generator=self._noise[result.device], device=result.device, dtype=result.dtype)
        return result.mul_(1 + self._step * (noise - 0.5))

    def restore_generators(self) -> None:
        """Set explicit generators back to the state before the run."""
        for generator, state in self._generators.values():
            generator.set_state(state)


class _WideTypes(TorchFunctionMode):  # type: ignore[misc]
    """Lets functions run that compare the types of their arguments before any operator does: convolutions and recurrent layers.

    Activations are wide and weights are not. So weights report the wide dtype, and a function that fails gets wide weights.
    """

    def __init__(self, precision: _HigherPrecision) -> None:
        super().__init__()
        self._precision = precision

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _DTYPE_OF:  # a new object at each access
            return self._precision.wide_dtype(func(*args))
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            dtypes = {x.dtype for x in leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
            if _out_of_memory(error) or all(self._precision.wide_dtype(dtype) is dtype for dtype in dtypes):
                raise
        return func(*self._precision.map(args), **self._precision.map(kwargs))


def _is_view(func: Any) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in schema_of(func).returns)


def random_state() -> list[Any]:
    """Return the state of torch's default generators, to find out whether a call draws random numbers."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def has_drawn(before: Sequence[Any]) -> bool:
    """Return whether random numbers were drawn since `random_state()`."""
    return any(not torch.equal(a, b) for a, b in zip(before, random_state(), strict=False))


def _rng_states(devices: Any) -> list[tuple[Any, Any]]:
    return [(None, torch.get_rng_state()), *((device, torch.cuda.get_rng_state(device)) for device in devices)]


def _restore_rng(states: Sequence[tuple[Any, Any]]) -> None:
    for device, state in states:
        if device is None:
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "out of memory" in str(error).lower()


class Referee:
    """Decides whether the results of a candidate are as accurate as eager's. The reference runs only if they differ."""

    def __init__(
        self,
        run_reference: Callable[[], Sequence[Leaf] | NoReference],
        tolerance: Tolerance = Tolerance(),
        run_rounded: Callable[[torch.dtype, int], Sequence[Leaf] | NoReference] | None = None,
    ) -> None:
        """`run_rounded` runs the reference with random rounding to a dtype, with a seed."""
        self._run = run_reference
        self._run_rounded = run_rounded
        self._tolerance = tolerance
        self._reference: Sequence[Leaf] | NoReference | None = None
        self._rounding_factor: float | None = None

    def judge(
        self, got: Sequence[Leaf], eager: Sequence[Leaf], spread: Sequence[TensorError] = ()
    ) -> tuple[OutputCheck, ...]:
        """Compare with eager; if they differ, compare both with the reference. `spread` is how much two eager runs differ."""
        table = ErrorTable(self._tolerance)
        table.add(got, eager, spread=spread)
        checks = table.checks()
        if all(check.verdict is Accuracy.SAME for check in checks):
            return checks
        if self._reference is None:
            self._reference = self._run()
        if isinstance(self._reference, NoReference):
            note = f"; it could not be run in higher precision: {self._reference.reason}"
            return tuple(x if x.verdict is Accuracy.SAME else replace(x, why=x.why + note) for x in checks)
        if len(self._reference) != len(eager):
            return checks
        table = ErrorTable(self._tolerance)
        table.add(got, eager, self._reference, spread=spread)
        checks = table.checks()
        if Accuracy.worst([check.verdict for check in checks]) is not Accuracy.LESS_ACCURATE:
            return checks
        return self._judge_with_rounding(checks, got, eager, self._reference, spread)

    def _judge_with_rounding(
        self,
        checks: tuple[OutputCheck, ...],
        got: Sequence[Leaf],
        eager: Sequence[Leaf],
        reference: Sequence[Leaf],
        spread: Sequence[TensorError],
    ) -> tuple[OutputCheck, ...]:
        """Allow a larger error where the error of one and the same computation depends much on how its results are rounded."""
        if self._rounding_factor is None:
            self._rounding_factor = self._measure_rounding_factor(eager, reference)
        if self._rounding_factor <= 1:
            return checks
        table = ErrorTable(replace(self._tolerance, ratio=self._tolerance.ratio * self._rounding_factor))
        table.add(got, eager, reference, spread=spread)
        note = f"; with other rounding, the error of the same computation varies by a factor of {self._rounding_factor:.2f}"
        return tuple(
            replace(wider, why=wider.why + note) if check.verdict is Accuracy.LESS_ACCURATE else check
            for check, wider in zip(checks, table.checks(), strict=True)
        )

    def _measure_rounding_factor(self, eager: Sequence[Leaf], reference: Sequence[Leaf]) -> float:
        """Return the largest divided by the smallest error of runs that round at random, at most 2; 1 if they cannot be run."""
        dtypes = [x.value.dtype for x in eager if isinstance(x.value, torch.Tensor) and x.value.is_floating_point()]
        if self._run_rounded is None or not dtypes:
            return 1.0
        lowest = max(dtypes, key=lambda dtype: float(torch.finfo(dtype).eps))
        errors: list[list[float]] = []
        for seed in range(_ROUNDED_RUNS):
            rounded = self._run_rounded(lowest, seed)
            if isinstance(rounded, NoReference):
                return 1.0
            errors.append(
                [
                    measure_error(x.value, wide.value, dtype=leaf.value.dtype).relative_l2
                    for leaf, x, wide in zip(eager, rounded, reference, strict=True)
                    if isinstance(leaf.value, torch.Tensor) and leaf.value.is_floating_point()
                ]
            )
        factors = (max(one) / min(one) for one in zip(*errors, strict=True) if min(one) > 0)
        return min(MAX_ROUNDING_FACTOR, max(factors, default=1.0))


def reference_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[..., Sequence[Leaf] | NoReference]:
    """Return a function that runs another one in higher precision, on request with random rounding, and returns its leaves."""

    def run(round_to: torch.dtype | None = None, seed: int = _SEED) -> Sequence[Leaf] | NoReference:
        ran = run_in_higher_precision(function, args, kwargs, round_to=round_to, seed=seed)
        return ran if isinstance(ran, NoReference) else ran.leaves

    return run


def worst_error(checks: Sequence[OutputCheck]) -> tuple[float, float | None, float | None]:
    """Return the largest difference from eager, and the error of the candidate and of eager for the least accurate result."""
    difference = max((check.difference.relative_l2 for check in checks), default=0.0)
    compared = [check for check in checks if check.error is not None and check.eager_error is not None]
    if not compared:
        return difference, None, None
    worst = max(compared, key=lambda check: check.error.relative_l2 if check.error else math.nan)
    if worst.error is None or worst.eager_error is None:
        return difference, None, None
    return difference, worst.error.relative_l2, worst.eager_error.relative_l2
