"""Which tensors share memory."""

from typing import Any


def storage_number(tensor: Any) -> int:
    """A number that two tensors have in common when they look at the same memory."""
    return int(tensor.untyped_storage()._cdata)


def byte_count(tensor: Any) -> int:
    """How much memory a tensor's elements take."""
    return int(tensor.numel() * tensor.element_size())
