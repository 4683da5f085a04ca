"""Copies a call's tensors into a graph's buffers, with as little work for the host as can be.

torch's grouped copy looks at every tensor again and gathers their addresses in C++: for 128 small tensors that takes ten times as
long as the replay that follows. Here everything but the sources is prepared once, and a copy is: ask each tensor for its address,
pack the addresses, launch one kernel.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Final

from rocsolid.torchapi.graphs.driver_api import copy_kernel, launcher
from rocsolid.torchapi.graphs.fast_checks import current_stream_number, grouped_copy
from rocsolid.torchapi.graphs.memory import byte_count, reach

Copy = Callable[[Sequence[Any]], None]
FEW, MOST = 16, 256  # sources that fit into one launch of either kernel
_LARGEST: Final = 2**20  # bytes; for more the device's own time counts, and torch's copies are as good
_THREADS, _WIDTH, _WIDEST = 256, 16, 64  # a thread copies 16 bytes at a time


def copies_into(statics: Sequence[Any]) -> Copy:
    """A function that copies as many tensors of the same shapes, strides and types into these."""
    ours = [number for number, static in enumerate(statics) if _is_small(static)]
    groups = [ours[at : at + MOST] for at in range(0, len(ours), MOST)]
    if len({statics[number].device for number in ours}) > 1:
        groups = []
    made = [_together([statics[number] for number in group]) for group in groups]
    if not made or None in made:
        return _by_torch(statics)
    rest = [number for number in range(len(statics)) if number not in set(ours)]
    if not rest and len(made) == 1 and made[0] is not None:
        return made[0]
    parts = [(group, copy) for group, copy in zip(groups, made, strict=True) if copy is not None]
    if rest:
        parts.append((rest, _by_torch([statics[number] for number in rest])))

    def copy_all(tensors: Sequence[Any]) -> None:
        for numbers, copy in parts:
            copy([tensors[number] for number in numbers])

    return copy_all


def _is_small(static: Any) -> bool:
    """Whether a tensor can be copied as bytes: without holes, and not larger than pays."""
    dense = reach(static.shape, static.stride()) == static.numel()
    return bool(static.is_cuda and dense and byte_count(static) <= _LARGEST)


def _by_torch(statics: Sequence[Any]) -> Copy:
    if len(statics) == 1:
        one = statics[0].copy_
        return lambda tensors: one(tensors[0])
    many, held = grouped_copy(), list(statics)

    def copy(tensors: Sequence[Any]) -> None:
        if any(map(is_, tensors, held)):  # a buffer that is given as itself, and may be large
            others = [(static, given) for static, given in zip(held, tensors, strict=True) if static is not given]
            if others:
                many(*map(list, zip(*others, strict=True)))
        else:
            many(held, tensors)

    return copy


def _together(statics: Sequence[Any]) -> Copy | None:
    """With one launch; None where there is no kernel for it."""
    import torch

    device = statics[0].device
    room = FEW if len(statics) <= FEW else MOST
    kernel = copy_kernel(device.index, room)
    if kernel is None:
        return None
    rows = [(static.data_ptr(), byte_count(static)) for static in statics]
    targets = torch.tensor(rows, dtype=torch.int64).to(device)
    packed = (ctypes.c_uint64 * (1 + room))(targets.data_ptr())
    most = max(size for _, size in rows)
    grid = (min(_WIDEST, max(1, -(-most // (_THREADS * _WIDTH)))), len(statics))
    launch = launcher(kernel, grid, _THREADS, packed)
    pack, beside = struct.Struct(f"={len(statics)}Q").pack_into, struct.calcsize("=Q")
    where, stream, index = torch.Tensor.data_ptr, current_stream_number(), device.index
    by_torch = _by_torch(statics)

    def copy(tensors: Sequence[Any], _alive: Any = targets) -> None:
        pack(packed, beside, *map(where, tensors))
        if launch(stream(index)):  # in a thread that has not met the device yet, for one
            by_torch(tensors)

    return copy
