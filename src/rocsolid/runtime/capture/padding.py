"""Finds which dimensions of a result depend on a bucketed length, so that only those are unpadded."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.call import BucketedDim, Call, CannotCapture
from rocsolid.runtime.capture.outputs import LengthRelation, Outputs
from rocsolid.runtime.capture.reachable_state import InitialState
from rocsolid.torchapi.graphs.capture_state import uncompiled
from rocsolid.torchapi.pytree import flatten


def find_length_relations(
    function: Callable[..., Any], call: Call, outputs: Outputs, static_inputs: Sequence[Any], initial: InitialState
) -> dict[int, tuple[LengthRelation, ...]]:
    """The relations of each owned result, by its index.

    Found by running the function with one length changed at a time: a dimension that merely has the size of a bucket must not
    be cut.
    """
    found: dict[int, list[LengthRelation]] = {}
    for group in sorted({dim.group for dim in call.bucketed}):
        dims = [dim for dim in call.bucketed if dim.group == group]
        size, other = dims[0].size, _other_length(dims[0])
        if any(dim.size != size for dim in dims):
            sizes = ", ".join(f"`{call.tensors[dim.tensor].path}` to {dim.size}" for dim in dims)
            problem = f"arguments of the same length are padded to different sizes: {sizes}"
            raise CannotCapture(Reason.BUCKET, problem, fix="give these arguments the same bucket sizes")
        if other < 1:
            continue
        shorter = _run(function, call, static_inputs, dims, other, initial)
        tree = flatten(shorter, "result")
        if tree.structure != outputs.tree.structure:
            problem = f"the result has a different structure for length {size} and length {other}"
            raise CannotCapture(Reason.BUCKET, problem, fix="capture without buckets=")
        for leaf, (kind, number) in zip(tree.leaves, outputs.plan, strict=True):
            if kind == "owned":
                long = tuple(outputs.owned[number].shape)
                found.setdefault(number, []).extend(
                    _relations(leaf.path, long, tuple(leaf.value.shape), (size, other), group)
                )
    return {number: tuple(relations) for number, relations in found.items() if relations}


def _other_length(dim: BucketedDim) -> int:
    return dim.length if dim.length != dim.size else dim.size - 1


def _run(
    function: Callable[..., Any],
    call: Call,
    static_inputs: Sequence[Any],
    dims: Sequence[BucketedDim],
    length: int,
    initial: InitialState,
) -> Any:
    tensors = list(static_inputs)
    for dim in dims:
        tensors[dim.tensor] = tensors[dim.tensor].narrow(dim.dim, 0, length)
    initial.restore()
    args, kwargs = call.rebuild(tensors)
    with uncompiled():
        return function(*args, **kwargs)


def _relations(
    path: str, long: tuple[int, ...], short: tuple[int, ...], lengths: tuple[int, int], group: int
) -> Iterator[LengthRelation]:
    size, other = lengths
    if len(long) != len(short):
        problem = f"`{path}` has {len(long)} dimensions for length {size} and {len(short)} for length {other}"
        raise CannotCapture(Reason.BUCKET, problem, fix="capture without buckets=")
    for dim, (a, b) in enumerate(zip(long, short, strict=True)):
        factor, rest = divmod(a - b, size - other)
        if a != b and (rest or factor < 1):
            raise CannotCapture(
                Reason.BUCKET,
                f"dimension {dim} of `{path}` is {a} for length {size} and {b} for length {other}: "
                "the relation cannot be inferred",
                fix='call it only with lengths that are bucket sizes, or use unpad="never"',
            )
        if a != b:
            yield LengthRelation(dim, factor, a - factor * size, group)
