"""Where tensors lie, which share memory, and how often they were written to."""

from collections.abc import Sequence
from typing import Any


def storage_number(tensor: Any) -> int:
    """A number that two tensors have in common when they look at the same memory."""
    return int(tensor.untyped_storage()._cdata)


def byte_count(tensor: Any) -> int:
    """How much memory a tensor's elements take."""
    return int(tensor.numel() * tensor.element_size())


def reach(shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements lie between the first and the last of a tensor, both counted."""
    return 1 + int(sum(step * (size - 1) for step, size in zip(stride, shape, strict=True) if size))


def writes_so_far(tensor: Any) -> int | None:
    """How often a tensor was written to in place; None in inference mode, where nobody counts."""
    return None if tensor.is_inference() else int(tensor._version)
