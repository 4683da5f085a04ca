"""Compares results: how much two tensors differ, and how much they may differ. Every tolerance of the project is here.

There are three comparisons:

- a replay with eager: the same kernels ran, so only a different order of sums is allowed (`compare`);
- a candidate with eager, where other kernels ran and round at other places: if they differ, both are compared with the same model in
  higher precision (`measure_error`, `judge`; `reference.py` makes that run);
- an operator with its float32 reference, element by element (`reference_tolerance`, `worst_excess`).

The active checks of `rocsolid probe` compare small computations with known results (`max_error`, `ACTIVE_CHECK_LIMITS`).
"""

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from rocsolid.model.verify_report import Accuracy, OutputCheck, TensorError
from rocsolid.torchapi.pytree import Leaf, constant_key, flatten_result


@dataclass(frozen=True, kw_only=True)
class DtypeLimits:
    """How much results of one dtype may differ. `docs/how-to/verify.md` explains the columns."""

    strict: float  # each element of a replay and eager, relative to the element or the RMS, whichever is larger
    rounding: float  # a relative L2 error against the reference that is never called less accurate
    compiled: float  # relative L2 difference of a candidate and eager, if there is no reference
    wrong_l2: float  # an error against the reference is wrong only above these
    wrong_element: float
    wrong_scale: float
    operator: tuple[float, float]  # (rtol, atol) of an operator and its reference: four steps of the largest values


# In bfloat16, correct compiled models were seen at 0.3 to 1.5 % from eager. TF32 rounds float32 inputs to 5e-4.
_LIMITS: Final = {
    torch.float64: DtypeLimits(
        strict=1e-9,
        rounding=1e-12,
        compiled=1e-6,
        wrong_l2=1e-9,
        wrong_element=1e-7,
        wrong_scale=1e-10,
        operator=(1e-7, 1e-8),
    ),
    torch.float32: DtypeLimits(
        strict=1e-5,
        rounding=1e-5,
        compiled=1e-2,
        wrong_l2=2e-3,
        wrong_element=2e-2,
        wrong_scale=5e-4,
        operator=(1.3e-5, 1e-5),
    ),
    torch.float16: DtypeLimits(
        strict=2e-3,
        rounding=1e-3,
        compiled=2e-2,
        wrong_l2=5e-3,
        wrong_element=0.1,
        wrong_scale=2e-3,
        operator=(4e-3, 4e-3),
    ),
    torch.bfloat16: DtypeLimits(
        strict=1.6e-2,
        rounding=4e-3,
        compiled=5e-2,
        wrong_l2=2e-2,
        wrong_element=0.25,
        wrong_scale=8e-3,
        operator=(3.2e-2, 3.2e-2),
    ),
}
_FLOAT8_LIMITS: Final = DtypeLimits(  # strict: the distance between two neighbouring float8 values
    strict=0.13, rounding=6e-2, compiled=0.25, wrong_l2=0.25, wrong_element=1.0, wrong_scale=6e-2, operator=(0.25, 0.25)
)
MAX_ERROR_RATIO: Final = 1.1  # compared with the reference, the error of a candidate may be this many times eager's
MAX_ROUNDING_FACTOR: Final = 2.0  # that ratio is multiplied by how much the error varies with rounding, but not by more
_MAX_ELEMENT_RATIO: Final = 4.0  # the same for the largest error of one element, which varies more
_WRONG_L2_RATIO: Final = 4.0  # above this many times the error that rounding explains, an error is wrong
_WRONG_ELEMENT_RATIO: Final = 8.0
_MAX_NOISE: Final = 4.0  # two eager runs may differ by this many tolerances: atomics sum in no fixed order
_ERROR_RATIO: Final = 1.5  # against float64, a result may have this many times the error of eager's
_NOISE_FACTOR: Final = 4  # a result may differ from eager by this many times the difference of two eager runs

PADDING_SCALE: Final = 4.0  # times the tolerance: for another length other kernels run, which sum in a different order
OTHER_BRANCH_SCALE: Final = 8.0  # times the tolerance: on another branch other kernels run, which round differently

# The active checks of `rocsolid probe --active`: the largest error, relative to the largest value of the right result.
# A product is compared with float64 on the CPU, a compiled model and a replay with eager, FP8 attention with float32.
ACTIVE_CHECK_LIMITS: Final = {
    "gemm float64": 1e-10,
    "gemm float32": 1e-3,
    "gemm float16": 2e-2,
    "gemm bfloat16": 1e-1,
    "compile": 1e-3,
    "capture": 1e-4,
    "fp8 attention": 0.2,
}


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How much results may differ. What is not given depends on the dtype."""

    rtol: float | None = None  # of each element
    atol: float | None = None
    limit: float | None = None  # relative L2 difference from eager that is accepted without a reference
    ratio: float = MAX_ERROR_RATIO  # error against the reference / eager's own error
    ignore: Collection[str] = ()  # paths of results that are not compared, such as one left uninitialised on purpose
    selects: Mapping[str, str] | None = None  # path of integers -> path of the scores in which they are positions


def limits_for(dtype: torch.dtype) -> DtypeLimits:
    """Return the limits of a floating-point or complex dtype."""
    return _LIMITS.get(dtype.to_real() if dtype.is_complex else dtype, _FLOAT8_LIMITS)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The outcome of comparing two results."""

    error: float  # the largest difference, relative to the size of eager's result
    mismatches: tuple[str, ...] = ()  # one sentence for each result beyond its tolerance
    nondeterministic: bool = False  # two eager runs on the same input differ too much for a comparison
    inputs: tuple[Leaf, ...] = ()  # of a failed check in service, with eager's results and the replay's
    expected: tuple[Leaf, ...] = ()
    got: tuple[Leaf, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every result is within its tolerance."""
        return not self.mismatches


def result_leaves(value: Any) -> tuple[Leaf, ...]:
    """Return the tensors and constants of a result, with paths that begin with `result`."""
    return flatten_result(value).leaves


def compare(
    eager: Sequence[Leaf],
    got: Sequence[Leaf],
    tolerance: Tolerance,
    noise: Sequence[float] | None = None,
    *,
    scale: float = 1.0,
) -> Comparison:
    """Compare a replay's result with eager's, leaf by leaf.

    `noise` is how much two eager runs on the same input differed, for each leaf; `scale` multiplies every tolerance.
    """
    if [leaf.path for leaf in eager] != [leaf.path for leaf in got]:
        return Comparison(error=math.inf, mismatches=("the replay returns a different structure than eager",))
    worst, mismatches, nondeterministic = 0.0, [], False
    for index, (expected, actual) in enumerate(zip(eager, got, strict=True)):
        if expected.path in tolerance.ignore:
            continue
        error, allowed, message = _leaf_difference(expected, actual, tolerance)
        allowed *= scale
        if noise is not None:
            if noise[index] > _MAX_NOISE * max(allowed, _LIMITS[torch.float32].strict):
                message = f"{expected.path}: two eager runs on the same input differ by {noise[index]:.1e} (relative)"
                nondeterministic = True
            else:
                allowed = max(allowed, _NOISE_FACTOR * noise[index])
        worst = max(worst, error)
        if error > allowed:
            mismatches.append(
                message or f"{expected.path}: relative error {error:.1e} against eager, {allowed:.1e} is allowed"
            )
    return Comparison(error=worst, mismatches=tuple(mismatches), nondeterministic=nondeterministic and bool(mismatches))


def spread_between(first: Sequence[Leaf], second: Sequence[Leaf]) -> list[TensorError]:
    """Return how much two eager runs on the same input differ, for each result; infinite where they cannot be compared."""
    spread = []
    for one, other in zip(first, second, strict=False):
        a, b = _as_tensor(one.value), _as_tensor(other.value)
        if a is None or b is None:
            spread.append(TensorError())
        elif a.shape != b.shape:
            spread.append(TensorError(relative_l2=math.inf, largest=math.inf))
        else:
            spread.append(measure_error(b, a))
    return spread


def noise_between(first: Sequence[Leaf], second: Sequence[Leaf]) -> list[float]:
    """Return how much two eager runs on the same input differ, for each result."""
    return [_leaf_difference(a, b, Tolerance())[0] for a, b in zip(first, second, strict=True)]


def measure_error(
    got: Any,
    want: Any,
    *,
    dtype: torch.dtype | None = None,
    tolerance: Tolerance = Tolerance(),
    spread: TensorError = TensorError(),
    where: Any = None,
) -> TensorError:
    """Return how much a tensor differs from another of the same shape.

    `dtype` is the precision of `got` if both were widened; `spread`, the difference of two eager runs, widens the tolerance; elements outside of the mask `where` are not
    compared.
    """
    dtype = dtype or got.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        wrong = int((got != want).sum()) if got.numel() else 0
        share = wrong / max(got.numel(), 1)
        return TensorError(relative_l2=share, largest=share, mismatched=wrong, elements=got.numel())
    wide = torch.complex128 if dtype.is_complex else torch.float64
    a, b = got.detach().to(wide), want.detach().to(device=got.device, dtype=wide)
    usable = torch.isfinite(a) & torch.isfinite(b)
    differs = ~usable & ~((torch.isnan(a) & torch.isnan(b)) | (a == b))
    if where is not None:
        usable, differs = usable & where, differs & where
    count = int(usable.sum())
    special, elements = int(differs.sum()), got.numel()
    if not count:
        return TensorError(special=special, elements=elements)
    a, b = torch.where(usable, a, 0), torch.where(usable, b, 0)
    difference, size = (a - b).abs(), b.abs()
    norm, other_norm, error_norm = (float(torch.linalg.vector_norm(x)) for x in (b, a, a - b))
    rms = norm / math.sqrt(count)
    base = size.clamp(min=rms)
    strict = limits_for(dtype).strict
    if tolerance.rtol is None and tolerance.atol is None:
        allowed = base * (strict + _NOISE_FACTOR * spread.largest)
    else:
        allowed = (tolerance.atol or 0.0) + size * (strict if tolerance.rtol is None else tolerance.rtol)
    dot = float((a * b.conj()).sum().real)
    largest = float(difference.max())
    return TensorError(
        relative_l2=_ratio(error_norm, norm),
        largest=_ratio(float((difference / base).max()), 1.0) if rms else _ratio(largest, 0.0),
        steps=_ratio(largest, torch.finfo(dtype).eps * float(size.max())),
        scale=abs(dot / norm**2 - 1) if norm else 0.0,
        cosine=max(-1.0, min(1.0, dot / (norm * other_norm))) if norm and other_norm else float(norm == other_norm),
        mismatched=int((difference > allowed).sum()),
        special=special,
        elements=elements,
    )


def _ratio(value: float, base: float) -> float:
    return value / base if base else (math.inf if value else 0.0)


def pool_errors(errors: Sequence[TensorError]) -> TensorError:
    """Return the errors of several runs as one: the RMS of the relative L2 errors, the worst of everything else."""
    mean_square = sum(error.relative_l2**2 for error in errors) / len(errors)
    return TensorError(
        relative_l2=math.sqrt(mean_square),
        largest=max(error.largest for error in errors),
        steps=max(error.steps for error in errors),
        scale=max(error.scale for error in errors),
        cosine=min(error.cosine for error in errors),
        mismatched=max(error.mismatched for error in errors),
        special=max(error.special for error in errors),
        elements=max(error.elements for error in errors),
    )


def judge(
    dtype: torch.dtype,
    difference: TensorError,
    *,
    error: TensorError | None,
    eager_error: TensorError | None,
    rounding: TensorError | None = None,
    tolerance: Tolerance = Tolerance(),
    spread: TensorError = TensorError(),
) -> tuple[Accuracy, str]:
    """Return the verdict on a result, and why.

    `difference` compares it with eager; `error`, `eager_error` and `rounding` are the errors against the reference of the candidate, of
    eager, and of a run that rounds at random. `spread` is how much two eager runs differ.
    """
    if not difference.mismatched and not difference.special:
        return Accuracy.SAME, ""
    if not (dtype.is_floating_point or dtype.is_complex):
        return _judge_integers(difference, error, eager_error)
    if tolerance.limit is not None and difference.relative_l2 <= tolerance.limit and not difference.special:
        return Accuracy.SAME, f"within limit={tolerance.limit:g} of eager"
    limits = limits_for(dtype)
    if error is None or eager_error is None:
        return _judge_without_reference(difference, max(limits.compiled, _NOISE_FACTOR * spread.relative_l2))
    if error.special:
        return (
            Accuracy.WRONG,
            f"NaN/Inf pattern differs from the reference in {error.special} elements, eager's does not",
        )
    bases = [eager_error, spread, *([rounding] if rounding else [])]
    for name, value, limit, ratio, base in (
        ("relative error", error.relative_l2, limits.wrong_l2, _WRONG_L2_RATIO, max(e.relative_l2 for e in bases)),
        (
            "error of one element",
            error.largest,
            limits.wrong_element,
            _WRONG_ELEMENT_RATIO,
            max(e.largest for e in bases),
        ),
        ("error of the scale", error.scale, limits.wrong_scale, _WRONG_ELEMENT_RATIO, max(e.scale for e in bases)),
    ):
        if value > max(limit, ratio * base):
            return Accuracy.WRONG, f"{name} {value:.1e} against the reference, rounding explains {base:.1e}"
    own = max(eager_error.relative_l2, spread.relative_l2)
    if error.relative_l2 <= tolerance.ratio * max(own, limits.rounding) and error.largest <= _MAX_ELEMENT_RATIO * max(
        eager_error.largest, spread.largest, limits.strict
    ):
        return Accuracy.AS_ACCURATE, f"error {error.relative_l2:.1e} against the reference, eager's own {own:.1e}"
    allowed = tolerance.ratio * max(own, limits.rounding)
    return (
        Accuracy.LESS_ACCURATE,
        f"error {error.relative_l2:.1e} against the reference, eager's own {own:.1e}, {allowed:.1e} is allowed",
    )


def as_accurate(got: Any, eager: Any, reference: Any) -> bool:
    """Return whether a tensor is as accurate as eager's, compared with the reference."""
    dtype = got.dtype
    error, own = (measure_error(x, reference, dtype=dtype) for x in (got, eager))
    verdict, _ = judge(dtype, measure_error(got, eager, dtype=dtype), error=error, eager_error=own)
    return verdict.passes


def eager_is_far_off(eager: Sequence[Leaf], reference: Sequence[Leaf], rounding: Sequence[Leaf]) -> bool:
    """Return whether the error of eager is larger than rounding explains."""
    for leaf, wide, rounded in zip(eager, reference, rounding, strict=False):
        value = leaf.value
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape == wide.value.shape:
            where = torch.isfinite(value) == torch.isfinite(wide.value)
            error, explained = (
                measure_error(x, wide.value, dtype=value.dtype, where=where) for x in (value, rounded.value)
            )
            if judge(value.dtype, error, error=error, eager_error=explained)[0] is Accuracy.WRONG:
                return True
    return False


def is_wrong_step(got: Any, want: Any) -> bool:
    """Return whether the result of one operator differs from eager's by more than rounding explains.

    Results of different precision are compared by the limits of the less precise one.
    """
    dtype = want.dtype
    if got.dtype != dtype:
        if not (got.is_floating_point() and want.is_floating_point()):
            return False  # a later operator shows whether that matters
        dtype = max(got.dtype, dtype, key=lambda kind: float(torch.finfo(kind).eps))
        got, want = got.double(), want.double()
    error = measure_error(got, want, dtype=dtype)
    if not (want.is_floating_point() or want.is_complex()):
        return bool(error.mismatched)
    limits = limits_for(dtype)
    return bool(error.special) or error.relative_l2 > limits.wrong_l2 or error.largest > limits.wrong_element


def _judge_integers(
    difference: TensorError, error: TensorError | None, eager_error: TensorError | None
) -> tuple[Accuracy, str]:
    count = f"{difference.mismatched} of {difference.elements} integers differ from eager"
    if error is not None and eager_error is not None and error.mismatched <= eager_error.mismatched:
        return Accuracy.AS_ACCURATE, f"{count}; eager differs from the reference in {eager_error.mismatched}"
    return Accuracy.WRONG, f"{count}; if they are positions, return the scores too, or pass selects="


def _judge_without_reference(difference: TensorError, limit: float) -> tuple[Accuracy, str]:
    if difference.special:
        return Accuracy.WRONG, f"NaN/Inf pattern differs from eager in {difference.special} elements"
    text = f"relative error {difference.relative_l2:.1e} compared with eager, {limit:.1e} is allowed"
    return (Accuracy.WRONG if difference.relative_l2 > limit else Accuracy.AS_ACCURATE), text


def relative_error(got: Any, want: Any) -> float:
    """Return the largest error over all results: relative L2 norm of floats, share of differing elements of others."""
    got_leaves, want_leaves = result_leaves(got), result_leaves(want)
    if len(got_leaves) != len(want_leaves):
        return math.inf
    return max((_relative_l2(a.value, b.value) for a, b in zip(got_leaves, want_leaves, strict=True)), default=0.0)


def error_limit(want: Any) -> float:
    """Return how large `relative_error` of a compiled model may be, for results of these dtypes."""
    dtypes = {leaf.value.dtype for leaf in result_leaves(want) if isinstance(leaf.value, torch.Tensor)}
    return max((limits_for(dtype).compiled for dtype in dtypes), default=0.0)


def is_as_exact(got: Any, want: Any, exact: Any) -> bool:
    """Return whether a result is about as close to one in float64 as eager's result is."""
    return relative_error(got, exact) <= _ERROR_RATIO * relative_error(want, exact)


def reference_tolerance(
    dtype: torch.dtype, rtol: float | None = None, atol: float | None = None
) -> tuple[float, float]:
    """Return (rtol, atol) for an operator's result of this dtype; values that the caller gives replace the defaults."""
    relative, absolute = limits_for(dtype).operator if dtype.is_floating_point or dtype.is_complex else (0.0, 0.0)
    return relative if rtol is None else rtol, absolute if atol is None else atol


def worst_excess(got: Any, want: Any, rtol: float, atol: float) -> float:
    """Return the largest |got - want| / (atol + rtol * |want|). Above 1 is a mismatch; infinity if only one has a NaN or Inf."""
    if got.shape != want.shape:
        return math.inf
    if not got.numel():
        return 0.0
    a, b = got.detach().double(), want.detach().double()
    special = ~torch.isfinite(a) | ~torch.isfinite(b)
    same = (torch.isnan(a) & torch.isnan(b)) | (a == b)
    if bool((special & ~same).any()):
        return math.inf
    difference = torch.where(special | same, 0.0, (a - b).abs())
    allowed = atol + rtol * b.abs()
    return float(torch.where(difference == 0, 0.0, difference / allowed).max())


def max_error(got: Any, want: Any) -> float:
    """Return the largest |got - want|, relative to the largest |want|; infinity when `got` has a NaN or Inf."""
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return float((got.double() - want.double()).abs().max()) / (float(want.abs().max()) or 1.0)


def detached_copy(result: Any) -> Any:
    """Return a copy of a result that later calls cannot change."""
    flat = flatten_result(result)
    return flat.unflatten(
        [
            leaf.value.detach().clone() if isinstance(leaf.value, torch.Tensor) else _shallow_copy(leaf.value)
            for leaf in flat.leaves
        ]
    )


def _shallow_copy(value: Any) -> Any:
    try:
        return copy.copy(value)
    except TypeError:
        return value


def _relative_l2(got: Any, want: Any) -> float:
    if not isinstance(want, torch.Tensor):
        return 0.0
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        return math.inf
    if not want.is_floating_point():
        return float((got != want).float().mean()) if want.numel() else 0.0
    a, b = got.detach().double(), want.detach().double()
    finite = torch.isfinite(a) & torch.isfinite(b)
    if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return math.inf
    norm = float(b[finite].norm())
    difference = float((a[finite] - b[finite]).norm())
    return difference / norm if norm else (0.0 if difference == 0 else math.inf)


def _leaf_difference(eager: Leaf, got: Leaf, tolerance: Tolerance) -> tuple[float, float, str]:
    """Return the error, the allowed error, and a message where the error alone does not describe the difference."""
    a, b = eager.value, got.value
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        key = constant_key(a)
        same = type(a) is type(b) and (a is b or (key is not None and key == constant_key(b)))
        return (0.0, 0.0, "") if same else (math.inf, 0.0, f"{eager.path} is {b!r}, eager returns {a!r}")
    if a.shape != b.shape or a.dtype != b.dtype:
        text = f"{eager.path} is {b.dtype}{list(b.shape)}, eager returns {a.dtype}{list(a.shape)}"
        return math.inf, 0.0, text.replace("torch.", "")
    if a.numel() == 0:
        return 0.0, 0.0, ""
    if not (a.is_floating_point() or a.is_complex()):
        wrong = int((a != b).sum())
        text = f"{eager.path}: {wrong} of {a.numel()} elements differ from eager ({a.dtype} must be exact)"
        return wrong / a.numel(), 0.0, text.replace("torch.", "") if wrong else ""
    return _float_difference(eager.path, a, b, tolerance)


def _float_difference(path: str, a: Any, b: Any, tolerance: Tolerance) -> tuple[float, float, str]:
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.detach().to(wide), b.detach().to(wide)
    special = ~torch.isfinite(x) | ~torch.isfinite(y)
    if bool(special.any()):
        same = (torch.isnan(x) & torch.isnan(y)) | (x == y)
        if not bool(same[special].all()):
            count = int((special & ~same).sum())
            return math.inf, 0.0, f"{path}: NaN/Inf pattern differs from eager in {count} elements"
        x, y = torch.where(special, 0, x), torch.where(special, 0, y)
    rms = float(x.abs().pow(2).mean().sqrt())
    rtol = tolerance.rtol if tolerance.rtol is not None else limits_for(a.dtype).strict
    difference = (x - y).abs()
    if not bool(difference.any()):
        return 0.0, rtol, ""
    if tolerance.atol is not None:
        excess = float((difference - tolerance.atol - rtol * x.abs()).max())
        if excess <= 0:
            return 0.0, rtol, ""
        return math.inf if rms == 0 else float(difference.max()) / rms, 0.0, ""
    # Relative to the element or to the RMS of the whole, whichever is larger: an element close to zero, where a sum cancels, has a
    # large relative error that means nothing.
    error = float((difference / x.abs().clamp(min=rms)).max()) if rms else math.inf
    return error, rtol, ""


@dataclass(kw_only=True)
class _Errors:
    """The errors of one result, for one scale of the inputs, in several runs."""

    dtype: torch.dtype
    difference: list[TensorError]
    error: list[TensorError]
    eager_error: list[TensorError]
    rounding: list[TensorError]
    spread: TensorError


class ErrorTable:
    """Collects the errors of a candidate over several runs, and judges each result."""

    def __init__(self, tolerance: Tolerance = Tolerance()) -> None:
        self._tolerance = tolerance
        self._errors: dict[tuple[str, float], _Errors] = {}
        self._broken: dict[str, OutputCheck] = {}

    def add(
        self,
        got: Sequence[Leaf],
        eager: Sequence[Leaf],
        reference: Sequence[Leaf] | None = None,
        rounding: Sequence[Leaf] | None = None,
        *,
        scale: float = 1.0,
        spread: Sequence[TensorError] = (),
    ) -> None:
        """Add one run: the results of the candidate, of eager, of the reference, and of a run that rounds at random."""
        if [leaf.path for leaf in got] != [leaf.path for leaf in eager]:
            text = f"returns {_paths(got)}, eager returns {_paths(eager)}"
            self._break("result", "structure", text, scale)
            return
        for index, (ours, theirs) in enumerate(zip(got, eager, strict=True)):
            if theirs.path in self._tolerance.ignore:
                continue
            a, b = _as_tensor(ours.value), _as_tensor(theirs.value)
            if a is None or b is None:
                _, _, problem = _leaf_difference(theirs, ours, self._tolerance)
                if problem:
                    self._break(theirs.path, type(theirs.value).__name__, problem, scale)
                continue
            if a.shape != b.shape or a.dtype != b.dtype:
                text = f"is {a.dtype}{list(a.shape)}, eager returns {b.dtype}{list(b.shape)}".replace("torch.", "")
                self._break(theirs.path, str(b.dtype), text, scale)
                continue
            wide, rounded = (_as_tensor(leaves[index].value) if leaves else None for leaves in (reference, rounding))
            noise = spread[index] if spread else TensorError()
            if not b.is_floating_point() and not b.is_complex():
                selected = self._selected(theirs.path, a, b, eager, reference)
                if selected is not None:
                    a, b, noise = selected
                    wide = rounded = None
            self._add_tensor(theirs.path, a, b, wide, rounded, scale, noise)

    def _add_tensor(
        self, path: str, got: Any, eager: Any, reference: Any, rounding: Any, scale: float, spread: TensorError
    ) -> None:
        dtype = (
            torch.float32 if got.dim() == 0 and got.dtype is torch.float64 and got.device.type == "cpu" else got.dtype
        )
        errors = self._errors.setdefault(
            (path, scale), _Errors(dtype=dtype, difference=[], error=[], eager_error=[], rounding=[], spread=spread)
        )
        errors.spread = max(errors.spread, spread, key=lambda error: error.relative_l2)
        errors.difference.append(measure_error(got, eager, dtype=dtype, tolerance=self._tolerance, spread=spread))
        if reference is None or reference.shape != eager.shape:
            return
        # Where eager overflows and the reference does not, eager tells nothing about the right value.
        where = torch.isfinite(eager) == torch.isfinite(reference) if eager.is_floating_point() else None
        errors.error.append(measure_error(got, reference, dtype=dtype, where=where))
        errors.eager_error.append(measure_error(eager, reference, dtype=dtype, where=where))
        if rounding is not None and rounding.shape == eager.shape:
            errors.rounding.append(measure_error(rounding, reference, dtype=dtype, where=where))

    def _selected(
        self, path: str, got: Any, eager: Any, results: Sequence[Leaf], reference: Sequence[Leaf] | None
    ) -> tuple[Any, Any, TensorError] | None:
        """Return the scores that integers select, for the candidate and for eager; None if no result has their scores."""
        if eager.dtype is torch.bool or bool((got == eager).all()):
            return None
        wanted = (self._tolerance.selects or {}).get(path)
        for index, leaf in enumerate(results):
            scores = leaf.value
            if (
                not isinstance(scores, torch.Tensor)
                or not scores.is_floating_point()
                or scores.dim() != eager.dim() + 1
            ):
                continue
            if scores.shape[:-1] != eager.shape or (wanted is not None and wanted != leaf.path):
                continue
            size = scores.shape[-1]
            if any(bool(((x < 0) | (x >= size)).any()) for x in (got, eager)):
                continue
            ours, theirs = (scores.gather(-1, x.long().unsqueeze(-1)).squeeze(-1) for x in (got, eager))
            if wanted is None and not torch.equal(theirs, scores.amax(-1)):
                continue  # not the positions of the largest scores
            wide = _as_tensor(reference[index].value) if reference else None
            spread = measure_error(scores, wide, dtype=scores.dtype) if wide is not None else TensorError()
            return ours, theirs, spread
        return None

    def _break(self, path: str, dtype: str, why: str, scale: float) -> None:
        error = TensorError(relative_l2=math.inf, largest=math.inf, cosine=0.0)
        self._broken.setdefault(
            path,
            OutputCheck(
                path=path,
                dtype=dtype.removeprefix("torch."),
                verdict=Accuracy.WRONG,
                why=why,
                difference=error,
                scale=scale,
            ),
        )

    def checks(self) -> tuple[OutputCheck, ...]:
        """Return the verdict on each result, with the errors of its worst scale."""
        found: dict[str, OutputCheck] = dict(self._broken)
        for (path, scale), errors in self._errors.items():
            check = self._judge(path, scale, errors)
            known = found.get(path)
            if known is None or Accuracy.worst([known.verdict, check.verdict]) is not known.verdict:
                found[path] = check
        return tuple(found.values())

    def _judge(self, path: str, scale: float, errors: _Errors) -> OutputCheck:
        difference = pool_errors(errors.difference)
        error, eager_error, rounding = (
            pool_errors(listed) if len(listed) else None
            for listed in (errors.error, errors.eager_error, errors.rounding)
        )
        verdict, why = judge(
            errors.dtype,
            difference,
            error=error,
            eager_error=eager_error,
            rounding=rounding,
            tolerance=self._tolerance,
            spread=errors.spread,
        )
        return OutputCheck(
            path=path,
            dtype=str(errors.dtype).removeprefix("torch."),
            verdict=verdict,
            why=why,
            difference=difference,
            error=error,
            eager_error=eager_error,
            rounding_error=rounding.relative_l2 if rounding else None,
            scale=scale,
        )


def _paths(leaves: Sequence[Leaf]) -> str:
    return ", ".join(leaf.path for leaf in leaves) or "nothing"


def _as_tensor(value: Any) -> Any:
    """Return a tensor, or a Python float as one; None for anything else."""
    if type(value) is float:
        return torch.tensor(value, dtype=torch.float64)
    return value if isinstance(value, torch.Tensor) and value.layout is torch.strided else None
