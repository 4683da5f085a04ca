"""The checks before a replay, done by torch's own C++ in place of Python.

For 128 tensors a comparison of shapes, strides and types in Python costs more than the replay; torch's compiled guards do it
in a tenth of the time. Where a name is missing there is a plain-Python way with the same answers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rocsolid.torchapi.private_api import private

_TENSORS = private("torch._C._dynamo.guards", "TensorGuards", "2.4..")
_STATE = private("torch._C._dynamo.guards", "GlobalStateGuard", "2.4..")
_POINTERS = private("torch._C", "_tensors_data_ptrs_at_indices_equal", "2.3..", device_build=True)
_COPIES = private("torch", "_foreach_copy_", "2.1..")
_RAW_STREAM = private("torch._C", "_cuda_getCurrentRawStream", "2.3..", device_build=True)


def tensor_check(tensors: Sequence[Any], free: Mapping[int, Collection[int]] | None = None) -> Callable[..., bool]:
    """A function that tells whether as many tensors look like these: type, shape, stride, element type, device, gradient.

    In `free`, dimensions of single tensors may have any size, and such a tensor any strides. The state of gradients and
    inference mode is that of this moment. One tensor given twice never fits.
    """
    if not tensors:
        return _nothing_fits
    free = free or {}
    sizes = [
        [None if dim in free.get(number, ()) else size for dim, size in enumerate(tensor.shape)]
        for number, tensor in enumerate(tensors)
    ]
    strides = [
        [None] * tensor.dim() if number in free else list(tensor.stride()) for number, tensor in enumerate(tensors)
    ]
    guards = _TENSORS.get()(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    check: Callable[..., bool] = guards.check
    return check


def _nothing_fits(*tensors: Any) -> bool:
    return not tensors


def state_check() -> Callable[[], bool]:
    """A function that tells whether torch is in the state it is in now.

    Gradients, autocast, determinism, precision of matrix products, default type, number of threads.
    """
    check: Callable[[], bool] = _STATE.get()().check
    return check


def pointer_check(tensors: Sequence[Any]) -> Callable[[], bool]:
    """A function that tells whether every one of these tensors still lies where it lies now."""
    import torch

    held = list(tensors)
    pointer = torch.Tensor.data_ptr
    pointers = [pointer(tensor) for tensor in held]
    if _POINTERS.exists() and held and all(tensor.device.type == "cuda" for tensor in held):
        equal, every = _POINTERS.get(), list(range(len(held)))
        return lambda: bool(equal(held, pointers, every))
    return lambda: list(map(pointer, held)) == pointers


def grouped_copy() -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """A function that copies many tensors into as many others with few launches."""
    copies: Callable[[Sequence[Any], Sequence[Any]], Any] = _COPIES.get()
    return copies


def current_stream_number() -> Callable[[int], int]:
    """A function that gives the number of a device's current stream without making an object of it."""
    number: Callable[[int], int] = _RAW_STREAM.get()
    return number
