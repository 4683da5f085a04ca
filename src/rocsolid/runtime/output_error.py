"""How far an answer is from eager's, and how far it may be."""

import copy
import math
from typing import Any, Final

import torch

from rocsolid.runtime.capture.tree import take_apart

# How far an answer may be from eager's, relative to its size. A compiler may sum in another order and keep more digits in
# between; in bfloat16 that was seen to make 0.3 to 1.5 per cent, and 13 per cent for a model that is really off.
_LIMITS: Final = {torch.float64: 1e-6, torch.float32: 1e-2, torch.float16: 2e-2, torch.bfloat16: 5e-2}
_LIMIT_OF_OTHERS: Final = 5e-2


def error_against(got: Any, truth: Any) -> float:
    """The largest difference over all results: of floats relative to the size of eager's, of others how many differ."""
    ours, theirs = take_apart(got, "result").leaves, take_apart(truth, "result").leaves
    if len(ours) != len(theirs):
        return math.inf
    return max((_leaf_error(a.value, b.value) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def _leaf_error(got: Any, truth: Any) -> float:
    if not isinstance(truth, torch.Tensor):
        return 0.0
    if not isinstance(got, torch.Tensor) or got.shape != truth.shape:
        return math.inf
    if not truth.is_floating_point():
        return float((got != truth).float().mean()) if truth.numel() else 0.0
    a, b = got.detach().double(), truth.detach().double()
    both = torch.isfinite(a) & torch.isfinite(b)
    if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return math.inf
    size = float(b[both].norm())
    apart = float((a[both] - b[both]).norm())
    return apart / size if size else (0.0 if apart == 0 else math.inf)


def limit_of(truth: Any) -> float:
    """How far an answer of these element types may be from eager's."""
    kinds = {leaf.value.dtype for leaf in take_apart(truth, "result").leaves if isinstance(leaf.value, torch.Tensor)}
    return max((_LIMITS.get(kind, _LIMIT_OF_OTHERS) for kind in kinds), default=0.0)


def kept(result: Any) -> Any:
    """A copy of a result that later calls cannot change."""
    tree = take_apart(result, "result")
    return tree.with_leaves(
        [
            leaf.value.detach().clone() if isinstance(leaf.value, torch.Tensor) else _copied(leaf.value)
            for leaf in tree.leaves
        ]
    )


def _copied(value: Any) -> Any:
    try:
        return copy.copy(value)
    except TypeError:
        return value
