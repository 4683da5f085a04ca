"""`rocsolid::merged_linear`: several linear layers of one input as one matrix product, if their weights are adjacent in memory.

`make_adjacent` moves the weights of such layers into one tensor and leaves each parameter as a view of its part. So there is no copy
that could be out of date: an optimizer step, `load_state_dict` and writes through `.data` all write to the memory that the product
reads. The operator checks at every call that the weights are adjacent. If one was replaced since, it computes each layer by itself.
A captured graph does not run this check, but `rs.capture` compares the address of every parameter before each replay.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import torch
from torch import Tensor

from rocsolid.torchapi.graphs.replay_checks import is_only_user


def _adjacent(parts: Sequence[Tensor]) -> Tensor | None:
    """Return tensors that follow each other in one storage as one tensor, without a copy; None if they do not."""
    first = parts[0]
    storage, next_offset, rows = first.untyped_storage().data_ptr(), first.storage_offset(), 0
    for part in parts:
        if (
            part.shape[1:] != first.shape[1:]
            or part.dtype != first.dtype
            or part.storage_offset() != next_offset
            or not part.is_contiguous()
            or part.untyped_storage().data_ptr() != storage
        ):
            return None
        next_offset += part.numel()
        rows += part.shape[0]
    return first.as_strided((rows, *first.shape[1:]), (*first.shape[1:], 1))


def _merged_linear(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """Return the results of all layers for the matrix `x`, next to each other. `biases` is empty, or has one for each weight."""
    weight = _adjacent(weights)
    bias = _adjacent(biases) if biases else None
    if weight is not None and (bias is not None or not biases):
        return torch.nn.functional.linear(x, weight, bias)
    linear = torch.nn.functional.linear
    results = [linear(x, w, biases[i] if biases else None) for i, w in enumerate(weights)]
    return torch.cat(results, 1)


def _fake(x: Tensor, weights: list[Tensor], _: list[Tensor]) -> Tensor:
    return x.new_empty((x.shape[0], sum(w.shape[0] for w in weights)))


_op: Any = torch.library.custom_op("rocsolid::merged_linear", _merged_linear, mutates_args=())
_op.register_fake(_fake)
MERGED_LINEAR: Final = torch.ops.rocsolid.merged_linear.default


def make_adjacent(parts: Sequence[Tensor]) -> bool:
    """Move tensors into one storage, each as a view of its part; return False if that could change what other code sees.

    A tensor stays where it is if anything else refers to its memory: another tensor, or an entry of a `state_dict` that was kept.
    """
    if _adjacent(parts) is not None:
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
