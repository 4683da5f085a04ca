"""Copies a call's tensors into a graph's static inputs with little CPU time.

Torch's `_foreach_copy_` inspects every tensor again at every call: for 128 small tensors that takes ten times as long as the
replay that follows. Here everything but the source addresses is prepared once. A copy then reads the address of each tensor, packs
the addresses, and launches one kernel.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Final

from rocsolid.torchapi.graphs.driver_api import copy_kernel, current_stream_handle, make_launch
from rocsolid.torchapi.graphs.replay_checks import byte_count, element_span
from rocsolid.torchapi.private_api import private_name

_FOREACH_COPY = private_name("torch", "_foreach_copy_", "2.1..", without="rs.capture: tensors are copied one by one")

Copy = Callable[[Sequence[Any]], None]
FEW, MOST = 16, 256  # the largest number of tensors that each of the two kernels can copy
_MAX_SMALL_BYTES: Final = 2**20  # for larger tensors the GPU time dominates, and torch's copies are as fast
_THREADS, _BYTES_PER_THREAD, _MAX_BLOCKS = 256, 16, 64


def foreach_copy() -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """Return torch's function that copies many tensors into as many others with few launches."""
    copy_many: Callable[[Sequence[Any], Sequence[Any]], Any] = _FOREACH_COPY.find() or _copy_one_by_one
    return copy_many


def _copy_one_by_one(targets: Sequence[Any], sources: Sequence[Any]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def make_batched_copy(targets: Sequence[Any]) -> Copy:
    """Return a function that copies tensors of the same shapes, strides and dtypes into `targets`."""
    small = [index for index, target in enumerate(targets) if _is_small(target)]
    groups = [small[start : start + MOST] for start in range(0, len(small), MOST)]
    if len({targets[index].device for index in small}) > 1:
        groups = []
    copies = [_copy_in_one_launch([targets[index] for index in group]) for group in groups]
    if not copies or None in copies:
        return _copy_with_torch(targets)
    rest = [index for index in range(len(targets)) if index not in set(small)]
    if not rest and len(copies) == 1 and copies[0] is not None:
        return copies[0]
    parts = [(group, copy) for group, copy in zip(groups, copies, strict=True) if copy is not None]
    if rest:
        parts.append((rest, _copy_with_torch([targets[index] for index in rest])))

    def copy_all(tensors: Sequence[Any]) -> None:
        for indices, copy in parts:
            copy([tensors[index] for index in indices])

    return copy_all


def _is_small(target: Any) -> bool:
    """Return whether a tensor can be copied as bytes (it has no gaps) and is small enough to be faster that way."""
    dense = element_span(target.shape, target.stride()) == target.numel()
    return bool(target.is_cuda and dense and byte_count(target) <= _MAX_SMALL_BYTES)


def _copy_with_torch(targets: Sequence[Any]) -> Copy:
    if len(targets) == 1:
        copy_one = targets[0].copy_
        return lambda tensors: copy_one(tensors[0])
    copy_many, all_targets = foreach_copy(), list(targets)

    def copy(tensors: Sequence[Any]) -> None:
        if any(map(is_, tensors, all_targets)):  # a static input was passed itself and need not be copied
            others = [
                (target, tensor) for target, tensor in zip(all_targets, tensors, strict=True) if target is not tensor
            ]
            if others:
                copy_many(*map(list, zip(*others, strict=True)))
        else:
            copy_many(all_targets, tensors)

    return copy


def _copy_in_one_launch(targets: Sequence[Any]) -> Copy | None:
    """Return a function that copies with one kernel launch; None where the kernel is not available."""
    import torch

    device = targets[0].device
    capacity = FEW if len(targets) <= FEW else MOST
    kernel = copy_kernel(device.index, capacity)
    if kernel is None:
        return None
    rows = [(target.data_ptr(), byte_count(target)) for target in targets]
    table = torch.tensor(rows, dtype=torch.int64).to(device)
    packed = (ctypes.c_uint64 * (1 + capacity))(table.data_ptr())
    largest = max(size for _, size in rows)
    grid = (min(_MAX_BLOCKS, max(1, -(-largest // (_THREADS * _BYTES_PER_THREAD)))), len(targets))
    launch = make_launch(kernel, grid, _THREADS, packed)
    pack, offset = struct.Struct(f"={len(targets)}Q").pack_into, struct.calcsize("=Q")
    address, stream, index = torch.Tensor.data_ptr, current_stream_handle(), device.index
    copy_with_torch = _copy_with_torch(targets)

    def copy(tensors: Sequence[Any], _alive: Any = table) -> None:
        pack(packed, offset, *map(address, tensors))
        if launch(stream(index)):  # fails in a thread that has not used the GPU yet, for example
            copy_with_torch(tensors)

    return copy
