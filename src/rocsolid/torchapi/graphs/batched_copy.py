"""Copies a call's tensors into a graph's static inputs with little CPU time.

Torch's `_foreach_copy_` inspects every tensor again and collects their addresses in C++: for 128 small tensors that takes ten
times as long as the replay that follows. Here everything but the source addresses is prepared once. A copy then reads the address
of each tensor, packs the addresses, and launches one kernel.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Final

from rocsolid.torchapi.graphs.driver_api import copy_kernel, current_stream_handle, make_launch
from rocsolid.torchapi.graphs.tensor_checks import byte_count, element_span
from rocsolid.torchapi.private_api import private_name

_FOREACH_COPY = private_name("torch", "_foreach_copy_", "2.1..")

Copy = Callable[[Sequence[Any]], None]
FEW, MOST = 16, 256  # how many sources one launch of the two kernels takes
_LARGEST_BYTES: Final = 2**20  # larger tensors are bound by GPU time, where torch's copies are as fast
_THREADS, _BYTES_PER_THREAD, _MAX_BLOCKS = 256, 16, 64


def foreach_copy() -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """Torch's function that copies many tensors into as many others with few launches."""
    copies: Callable[[Sequence[Any], Sequence[Any]], Any] = _FOREACH_COPY.get()
    return copies


def make_batched_copy(targets: Sequence[Any]) -> Copy:
    """A function that copies as many tensors of the same shapes, strides and dtypes into `targets`."""
    small = [number for number, target in enumerate(targets) if _is_small(target)]
    groups = [small[at : at + MOST] for at in range(0, len(small), MOST)]
    if len({targets[number].device for number in small}) > 1:
        groups = []
    made = [_copy_in_one_launch([targets[number] for number in group]) for group in groups]
    if not made or None in made:
        return _copy_with_torch(targets)
    rest = [number for number in range(len(targets)) if number not in set(small)]
    if not rest and len(made) == 1 and made[0] is not None:
        return made[0]
    parts = [(group, copy) for group, copy in zip(groups, made, strict=True) if copy is not None]
    if rest:
        parts.append((rest, _copy_with_torch([targets[number] for number in rest])))

    def copy_all(tensors: Sequence[Any]) -> None:
        for numbers, copy in parts:
            copy([tensors[number] for number in numbers])

    return copy_all


def _is_small(target: Any) -> bool:
    """Whether a tensor can be copied as bytes (it has no gaps) and is small enough for that to pay."""
    dense = element_span(target.shape, target.stride()) == target.numel()
    return bool(target.is_cuda and dense and byte_count(target) <= _LARGEST_BYTES)


def _copy_with_torch(targets: Sequence[Any]) -> Copy:
    if len(targets) == 1:
        copy_one = targets[0].copy_
        return lambda tensors: copy_one(tensors[0])
    copy_many, held = foreach_copy(), list(targets)

    def copy(tensors: Sequence[Any]) -> None:
        if any(map(is_, tensors, held)):  # a static input that is passed as itself, and may be large
            others = [(target, given) for target, given in zip(held, tensors, strict=True) if target is not given]
            if others:
                copy_many(*map(list, zip(*others, strict=True)))
        else:
            copy_many(held, tensors)

    return copy


def _copy_in_one_launch(targets: Sequence[Any]) -> Copy | None:
    """Copy with one kernel launch; None where the kernel is not available."""
    import torch

    device = targets[0].device
    room = FEW if len(targets) <= FEW else MOST
    kernel = copy_kernel(device.index, room)
    if kernel is None:
        return None
    rows = [(target.data_ptr(), byte_count(target)) for target in targets]
    table = torch.tensor(rows, dtype=torch.int64).to(device)
    packed = (ctypes.c_uint64 * (1 + room))(table.data_ptr())
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
