"""Finds which dimensions of a result depend on a bucketed length, so that only those are unpadded."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.call import BucketedDim, Call, CannotCapture
from rocsolid.runtime.capture.outputs import LengthRelation, Outputs
from rocsolid.runtime.capture.state_snapshot import InitialState
from rocsolid.torchapi.graphs.capture_state import uncompiled
from rocsolid.torchapi.pytree import flatten_result

_NO_RELATION_FIX: Final = 'call it only with lengths that are bucket sizes, or use unpad="never"'


def find_length_relations(
    function: Callable[..., Any], call: Call, outputs: Outputs, static_inputs: Sequence[Any], initial: InitialState
) -> dict[int, tuple[LengthRelation, ...]]:
    """Return the length relations of each result whose memory belongs to the graph (an owned result), by its index.

    The function is run with one length changed at a time: a dimension that only happens to have the size of a bucket must not be
    cut.
    """
    relations: dict[int, list[LengthRelation]] = {}
    for group in sorted({dim.group for dim in call.bucketed}):
        dims = [dim for dim in call.bucketed if dim.group == group]
        size, other_length = dims[0].size, _other_length(dims[0])
        if any(dim.size != size for dim in dims):
            sizes = ", ".join(f"`{call.tensors[dim.tensor].path}` to {dim.size}" for dim in dims)
            problem = f"arguments of the same length are padded to different sizes: {sizes}"
            raise CannotCapture(Reason.BUCKET, problem, fix="give these arguments the same bucket sizes")
        if other_length < 1:
            continue
        found: dict[int, list[LengthRelation]] = {}
        for length in dict.fromkeys((other_length, max(1, other_length // 2))):  # two lengths: one may fit by chance
            tree = flatten_result(_run(function, call, static_inputs, dims, length, initial))
            if tree.structure != outputs.tree.structure:
                problem = f"the result has a different structure for length {size} and length {length}"
                raise CannotCapture(Reason.BUCKET, problem, fix="capture without buckets=")
            for leaf, (kind, index) in zip(tree.leaves, outputs.plan, strict=True):
                if kind == "owned":
                    shapes = tuple(outputs.owned[index].shape), tuple(leaf.value.shape)
                    now = list(_relations(leaf.path, shapes, (size, length), group))
                    if found.setdefault(index, now) != now:
                        problem = f"cannot infer how the shape of `{leaf.path}` depends on the length"
                        raise CannotCapture(Reason.BUCKET, problem, fix=_NO_RELATION_FIX)
        for index, now in found.items():
            relations.setdefault(index, []).extend(now)
    return {index: tuple(each) for index, each in relations.items() if each}


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
    with uncompiled():
        return call.run(function, tensors)


def _relations(
    path: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], lengths: tuple[int, int], group: int
) -> Iterator[LengthRelation]:
    """Compare the shapes of one result for two lengths. Raises CannotCapture when a dimension depends on them in no simple way."""
    shape, other_shape = shapes
    length, other_length = lengths
    if len(shape) != len(other_shape):
        problem = (
            f"`{path}` has {len(shape)} dimensions for length {length} and {len(other_shape)} for length {other_length}"
        )
        raise CannotCapture(Reason.BUCKET, problem, fix="capture without buckets=")
    for dim, (size, other_size) in enumerate(zip(shape, other_shape, strict=True)):
        if size == other_size:
            continue
        factor, remainder = divmod(size - other_size, length - other_length)
        if remainder or factor < 1:
            raise CannotCapture(
                Reason.BUCKET,
                f"dimension {dim} of `{path}` is {size} for length {length} and {other_size} for length {other_length}: "
                "cannot infer how the result depends on the length, so the padding cannot be removed",
                fix=_NO_RELATION_FIX,
            )
        yield LengthRelation(dim, factor, size - factor * length, group)
