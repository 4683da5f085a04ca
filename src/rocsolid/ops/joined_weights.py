"""`rocsolid::joined_weights`: the weights of several linear layers as one, without a copy if they are adjacent in memory.

`make_adjacent` moves the weights of such layers into one tensor and leaves each parameter as a view of its part. So there is no copy
that could be out of date: an optimizer step, `load_state_dict` and writes through `.data` all write to the memory that the product
reads. The operator checks at every call that the weights are adjacent. If one was replaced since, it copies them, which is slower.
A captured graph does not run this check, but `rs.capture` compares the address of every parameter before each replay.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import torch
from torch import Tensor

from rocsolid.torchapi.graphs.replay_checks import is_only_user, storage_id


def are_adjacent(parts: Sequence[Tensor]) -> bool:
    """Return whether tensors follow each other in one storage."""
    first = parts[0]
    storage, next_offset = storage_id(first), first.storage_offset()
    for part in parts:
        if (
            part.shape[1:] != first.shape[1:]
            or part.dtype != first.dtype
            or part.storage_offset() != next_offset
            or not part.is_contiguous()
            or storage_id(part) != storage
        ):
            return False
        next_offset += part.numel()
    return True


def _joined_weights(parts: list[Tensor]) -> Tensor:
    """Return tensors one after the other, as a view of the first if they are adjacent."""
    if not are_adjacent(parts):
        return torch.cat(parts)
    first, rows = parts[0], sum(part.shape[0] for part in parts)
    return first.as_strided((rows, *first.shape[1:]), first.stride())


def _fake(parts: list[Tensor]) -> Tensor:
    return parts[0].new_empty((sum(part.shape[0] for part in parts), *parts[0].shape[1:]))


# The schema says that the result may share memory with the weights, so that Inductor never writes to that memory.
_library: Final = torch.library.Library("rocsolid", "FRAGMENT")
_library.define("joined_weights(Tensor(a)[] parts) -> Tensor(a)")
_library.impl("joined_weights", _joined_weights, "CompositeExplicitAutograd")
torch.library.register_fake("rocsolid::joined_weights", _fake, lib=_library)
JOINED_WEIGHTS: Final = torch.ops.rocsolid.joined_weights.default


def make_adjacent(parts: Sequence[Tensor]) -> bool:
    """Move tensors into one storage, each as a view of its part; return False if that could change what other code sees.

    A tensor stays where it is if anything else refers to its memory: another tensor, or an entry of a `state_dict` that was kept.
    """
    if are_adjacent(parts):
        return True
    if not all(map(_can_move, parts)) or len({id(part) for part in parts}) < len(parts):
        return False
    merged = torch.cat([part.detach() for part in parts])
    ends = list(accumulate(part.shape[0] for part in parts))
    for part, end in zip(parts, ends, strict=True):
        part.data = merged[end - part.shape[0] : end]
    return True


def _can_move(part: Tensor) -> bool:
    storage = part.untyped_storage()
    return (
        type(part) is torch.nn.Parameter
        and type(part.data) is Tensor
        and part.layout is torch.strided
        and part.is_contiguous()
        and part.numel() > 0
        and not part.is_inference()
        and storage.nbytes() == part.numel() * part.element_size()
        and not (part.device.type == "cpu" and storage.is_shared())  # with another process
        and is_only_user(part)
    )
