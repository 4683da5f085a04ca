"""Compare results: how far two tensors are apart, and how far they may be. Every tolerance of the project is here.

Three comparisons, because three things are compared:

- a replay with eager: the same kernels ran, so only a different order of sums is allowed (`compare`);
- a compiled model with eager: other kernels ran and intermediates are rounded elsewhere (`relative_error`, `error_limit`);
- an operator with its float32 reference, element by element (`reference_tolerance`, `worst_excess`).
"""

import copy
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from rocsolid.torchapi.pytree import Leaf, constant_key, flatten

# A replay and eager, relative to the RMS of eager's result.
_REPLAY_RTOL: Final = {
    torch.float64: 1e-9,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.complex128: 1e-9,
    torch.complex64: 1e-5,
}
_FLOAT8_RTOL: Final = 0.13  # the distance between two neighbouring float8 values
_MAX_NOISE: Final = 4.0  # eager may differ from itself by this many tolerances: atomics sum in no fixed order

# A compiled model and eager, as a relative L2 norm. In bfloat16 correct models were seen at 0.3 to 1.5 %, a wrong one at 13 %.
_COMPILED_LIMITS: Final = {torch.float64: 1e-6, torch.float32: 1e-2, torch.float16: 2e-2, torch.bfloat16: 5e-2}
_OTHER_COMPILED_LIMIT: Final = 5e-2

# An operator and its float32 reference: (rtol, atol) of each element, four units in the last place of the largest values.
_REFERENCE_TOLERANCE: Final = {
    torch.float64: (1e-7, 1e-8),
    torch.float32: (1.3e-5, 1e-5),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3.2e-2, 3.2e-2),
}


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a replay may be from eager: by dtype unless given, and never less than eager differs from itself."""

    rtol: float | None = None
    atol: float | None = None
    ignore: Collection[str] = ()  # paths of results that are not compared, such as one left uninitialised on purpose


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How far two results are apart."""

    error: float  # the largest difference, relative to the size of eager's result
    mismatches: tuple[str, ...] = ()  # one sentence for each result beyond its tolerance
    nondeterministic: bool = False  # two eager runs on the same input differ by too much to compare anything with

    @property
    def equal(self) -> bool:
        """Whether every result is within its tolerance."""
        return not self.mismatches


def result_leaves(value: Any) -> tuple[Leaf, ...]:
    """The tensors and constants of a result, with paths that begin with `result`."""
    return flatten(value, "result").leaves


def compare(
    eager: Sequence[Leaf],
    got: Sequence[Leaf],
    tolerance: Tolerance,
    noise: Sequence[float] | None = None,
    *,
    scale: float = 1.0,
) -> Comparison:
    """Compare a replay's result with eager's, leaf by leaf.

    `noise` is how far two eager runs on the same input were apart; `scale` multiplies every tolerance.
    """
    if [leaf.path for leaf in eager] != [leaf.path for leaf in got]:
        return Comparison(error=math.inf, mismatches=("the replay returns a different structure than eager",))
    worst, mismatches, nondeterministic = 0.0, [], False
    for number, (want, have) in enumerate(zip(eager, got, strict=True)):
        if want.path in tolerance.ignore:
            continue
        error, allowed, message = _leaf_difference(want, have, tolerance)
        allowed *= scale
        if noise is not None:
            if noise[number] > _MAX_NOISE * max(allowed, _REPLAY_RTOL[torch.float32]):
                message = f"{want.path}: two eager runs on the same input differ by {noise[number]:.1e} (relative)"
                nondeterministic = True
            else:
                allowed = max(allowed, 4 * noise[number])
        worst = max(worst, error)
        if error > allowed:
            mismatches.append(
                message or f"{want.path}: relative error {error:.1e} against eager, {allowed:.1e} is allowed"
            )
    return Comparison(error=worst, mismatches=tuple(mismatches), nondeterministic=nondeterministic and bool(mismatches))


def noise_between(first: Sequence[Leaf], second: Sequence[Leaf]) -> list[float]:
    """How far two eager runs on the same input are apart, for each result."""
    return [_leaf_difference(a, b, Tolerance())[0] for a, b in zip(first, second, strict=True)]


def relative_error(got: Any, want: Any) -> float:
    """The largest error over all results: relative L2 norm of floats, share of differing elements of others."""
    have, wanted = result_leaves(got), result_leaves(want)
    if len(have) != len(wanted):
        return math.inf
    return max((_relative_l2(a.value, b.value) for a, b in zip(have, wanted, strict=True)), default=0.0)


def error_limit(want: Any) -> float:
    """How large `relative_error` of a compiled model may be, for results of these dtypes."""
    dtypes = {leaf.value.dtype for leaf in result_leaves(want) if isinstance(leaf.value, torch.Tensor)}
    return max((_COMPILED_LIMITS.get(dtype, _OTHER_COMPILED_LIMIT) for dtype in dtypes), default=0.0)


def reference_tolerance(
    dtype: torch.dtype, rtol: float | None = None, atol: float | None = None
) -> tuple[float, float]:
    """(rtol, atol) for an operator's result of this dtype, with the caller's own values where given."""
    relative, absolute = _REFERENCE_TOLERANCE.get(dtype, (0.0, 0.0))
    return relative if rtol is None else rtol, absolute if atol is None else atol


def worst_excess(got: Any, want: Any, rtol: float, atol: float) -> float:
    """The largest of |got - want| / (atol + rtol * |want|); above 1 is a mismatch, infinity where only one is NaN or Inf."""
    if got.shape != want.shape:
        return math.inf
    if not got.numel():
        return 0.0
    a, b = got.detach().double(), want.detach().double()
    special = ~torch.isfinite(a) | ~torch.isfinite(b)
    same = (torch.isnan(a) & torch.isnan(b)) | (a == b)
    if bool((special & ~same).any()):
        return math.inf
    apart = torch.where(special | same, 0.0, (a - b).abs())
    allowed = atol + rtol * b.abs()
    return float(torch.where(apart == 0, 0.0, apart / allowed).max())


def detached_copy(result: Any) -> Any:
    """A copy of a result that later calls cannot change."""
    flat = flatten(result, "result")
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
    size = float(b[finite].norm())
    apart = float((a[finite] - b[finite]).norm())
    return apart / size if size else (0.0 if apart == 0 else math.inf)


def _leaf_difference(want: Leaf, have: Leaf, tolerance: Tolerance) -> tuple[float, float, str]:
    """The error, the tolerance, and a sentence where the difference is not one of size."""
    a, b = want.value, have.value
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        key = constant_key(a)
        same = type(a) is type(b) and (a is b or (key is not None and key == constant_key(b)))
        return (0.0, 0.0, "") if same else (math.inf, 0.0, f"{want.path} is {b!r}, eager returns {a!r}")
    if a.shape != b.shape or a.dtype != b.dtype:
        text = f"{want.path} is {b.dtype}{list(b.shape)}, eager returns {a.dtype}{list(a.shape)}"
        return math.inf, 0.0, text.replace("torch.", "")
    if a.numel() == 0:
        return 0.0, 0.0, ""
    if not (a.is_floating_point() or a.is_complex()):
        wrong = int((a != b).sum())
        text = f"{want.path}: {wrong} of {a.numel()} elements differ from eager ({a.dtype} must be exact)"
        return wrong / a.numel(), 0.0, text.replace("torch.", "") if wrong else ""
    return _float_difference(want.path, a, b, tolerance)


def _float_difference(path: str, a: Any, b: Any, tolerance: Tolerance) -> tuple[float, float, str]:
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.detach().to(wide), b.detach().to(wide)
    special = ~torch.isfinite(x) | ~torch.isfinite(y)
    if bool(special.any()):
        same = (torch.isnan(x) & torch.isnan(y)) | (x == y)
        if not bool(same[special].all()):
            many = int((special & ~same).sum())
            return math.inf, 0.0, f"{path}: NaN/Inf pattern differs from eager in {many} elements"
        x, y = torch.where(special, 0, x), torch.where(special, 0, y)
    size = float(x.abs().pow(2).mean().sqrt())
    rtol = tolerance.rtol if tolerance.rtol is not None else _REPLAY_RTOL.get(a.dtype, _FLOAT8_RTOL)
    apart = (x - y).abs()
    if not bool(apart.any()):
        return 0.0, rtol, ""
    if tolerance.atol is not None:
        over = float((apart - tolerance.atol - rtol * x.abs()).max())
        return (0.0, rtol, "") if over <= 0 else (math.inf if size == 0 else float(apart.max()) / size, 0.0, "")
    # Relative to the element or to the RMS of the whole, whichever is larger: sums that cancel are not an error.
    error = float((apart / x.abs().clamp(min=size)).max()) if size else math.inf
    return error, rtol, ""
