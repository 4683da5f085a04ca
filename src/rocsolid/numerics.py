"""Compares results: how much two tensors differ, and how much they may differ. Every tolerance of the project is here.

There are three comparisons:

- a replay with eager: the same kernels ran, so only a different order of sums is allowed (`compare`);
- a compiled model with eager: other kernels ran, and intermediate results are rounded at other places (`relative_error`,
  `error_limit`);
- an operator with its float32 reference, element by element (`reference_tolerance`, `worst_excess`).

The active checks of `rocsolid probe` compare small computations with known results (`max_error`, `ACTIVE_CHECK_LIMITS`).
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
_MAX_NOISE: Final = 4.0  # two eager runs may differ by this many tolerances: atomics sum in no fixed order
_NOISE_FACTOR: Final = 4  # a replay may differ from eager by this many times the difference of two eager runs

PADDING_SCALE: Final = 4.0  # times the tolerance: for another length other kernels run, which sum in a different order
OTHER_BRANCH_SCALE: Final = 8.0  # times the tolerance: on another branch other kernels run, which round differently

# A compiled model and eager, as a relative L2 norm. In bfloat16 correct models were seen at 0.3 to 1.5 %, a wrong one at 13 %.
_COMPILED_LIMITS: Final = {torch.float64: 1e-6, torch.float32: 1e-2, torch.float16: 2e-2, torch.bfloat16: 5e-2}
_OTHER_COMPILED_LIMIT: Final = 5e-2
# Compared with float64, the error of a tuned variant may be this many times the error of eager.
MAX_ERROR_RATIO: Final = 2.0

# An operator and its float32 reference: (rtol, atol) of each element, four units in the last place of the largest values.
_REFERENCE_TOLERANCE: Final = {
    torch.float64: (1e-7, 1e-8),
    torch.float32: (1.3e-5, 1e-5),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3.2e-2, 3.2e-2),
}

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
    """How much a replay may differ from eager. The values depend on the dtype unless they are given."""

    rtol: float | None = None
    atol: float | None = None
    ignore: Collection[str] = ()  # paths of results that are not compared, such as one left uninitialised on purpose


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The outcome of comparing two results."""

    error: float  # the largest difference, relative to the size of eager's result
    mismatches: tuple[str, ...] = ()  # one sentence for each result beyond its tolerance
    nondeterministic: bool = False  # two eager runs on the same input differ too much for a comparison

    @property
    def equal(self) -> bool:
        """Whether every result is within its tolerance."""
        return not self.mismatches


def result_leaves(value: Any) -> tuple[Leaf, ...]:
    """Return the tensors and constants of a result, with paths that begin with `result`."""
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
            if noise[index] > _MAX_NOISE * max(allowed, _REPLAY_RTOL[torch.float32]):
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


def noise_between(first: Sequence[Leaf], second: Sequence[Leaf]) -> list[float]:
    """Return how much two eager runs on the same input differ, for each result."""
    return [_leaf_difference(a, b, Tolerance())[0] for a, b in zip(first, second, strict=True)]


def relative_error(got: Any, want: Any) -> float:
    """Return the largest error over all results: relative L2 norm of floats, share of differing elements of others."""
    got_leaves, want_leaves = result_leaves(got), result_leaves(want)
    if len(got_leaves) != len(want_leaves):
        return math.inf
    return max((_relative_l2(a.value, b.value) for a, b in zip(got_leaves, want_leaves, strict=True)), default=0.0)


def error_limit(want: Any) -> float:
    """Return how large `relative_error` of a compiled model may be, for results of these dtypes."""
    dtypes = {leaf.value.dtype for leaf in result_leaves(want) if isinstance(leaf.value, torch.Tensor)}
    return max((_COMPILED_LIMITS.get(dtype, _OTHER_COMPILED_LIMIT) for dtype in dtypes), default=0.0)


def reference_tolerance(
    dtype: torch.dtype, rtol: float | None = None, atol: float | None = None
) -> tuple[float, float]:
    """Return (rtol, atol) for an operator's result of this dtype; values that the caller gives replace the defaults."""
    relative, absolute = _REFERENCE_TOLERANCE.get(dtype, (0.0, 0.0))
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
    rtol = tolerance.rtol if tolerance.rtol is not None else _REPLAY_RTOL.get(a.dtype, _FLOAT8_RTOL)
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
