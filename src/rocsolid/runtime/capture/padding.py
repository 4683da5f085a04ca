"""Finds out which dimensions of a result follow a bucketed length, so that they and no others are cut back."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.call import Call, CannotCapture, Length
from rocsolid.runtime.capture.outputs import Follows, Outputs
from rocsolid.runtime.capture.state import Stage
from rocsolid.torchapi.graphs.capture_state import uncompiled
from rocsolid.torchapi.pytree import flatten


def followed(
    function: Callable[..., Any], call: Call, outputs: Outputs, statics: Sequence[Any], stage: Stage
) -> dict[int, tuple[Follows, ...]]:
    """By number of the result, found by running with one length changed at a time: equal sizes alone prove nothing."""
    found: dict[int, list[Follows]] = {}
    for group in sorted({length.group for length in call.lengths}):
        lengths = [length for length in call.lengths if length.group == group]
        size, other = lengths[0].size, _another(lengths[0])
        if any(length.size != size for length in lengths):
            sizes = ", ".join(f"{call.tensors[length.tensor].path!r} to {length.size}" for length in lengths)
            raise CannotCapture(Reason.BUCKET, f"arguments of one length are padded to different sizes: {sizes}")
        if other < 1:
            continue
        shorter = _run(function, call, statics, lengths, other, stage)
        tree = flatten(shorter, "result")
        if tree.structure != outputs.tree.structure:
            raise CannotCapture(Reason.BUCKET, "the function returns another structure for another length")
        for leaf, (kind, number) in zip(tree.leaves, outputs.plan, strict=True):
            if kind == "owned":
                long = tuple(outputs.owned[number].shape)
                found.setdefault(number, []).extend(
                    _follows(leaf.path, long, tuple(leaf.value.shape), (size, other), group)
                )
    return {number: tuple(follows) for number, follows in found.items() if follows}


def _another(length: Length) -> int:
    return length.length if length.length != length.size else length.size - 1


def _run(
    function: Callable[..., Any],
    call: Call,
    statics: Sequence[Any],
    lengths: Sequence[Length],
    other: int,
    stage: Stage,
) -> Any:
    tensors = list(statics)
    for length in lengths:
        tensors[length.tensor] = tensors[length.tensor].narrow(length.dim, 0, other)
    stage.reset()
    args, kwargs = call.rebuilt(tensors)
    with uncompiled():
        return function(*args, **kwargs)


def _follows(
    path: str, long: tuple[int, ...], short: tuple[int, ...], lengths: tuple[int, int], group: int
) -> Iterator[Follows]:
    size, other = lengths
    if len(long) != len(short):
        raise CannotCapture(
            Reason.BUCKET, f"{path} has {len(long)} dimensions for length {size} and {len(short)} for {other}"
        )
    for dim, (a, b) in enumerate(zip(long, short, strict=True)):
        times, rest = divmod(a - b, size - other)
        if a != b and (rest or times < 1):
            detail = (
                f"dimension {dim} of {path} is {a} for length {size} and {b} for length {other}: it cannot be told what it is "
                "for others; use lengths that fit the buckets, or unpad='never'"
            )
            raise CannotCapture(Reason.BUCKET, detail)
        if a != b:
            yield Follows(dim, times, a - times * size, group)
