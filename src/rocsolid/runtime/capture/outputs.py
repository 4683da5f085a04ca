"""What a replay returns: copies of the graph's results, views that raise when they are stale, or the caller's own tensors.

A result tensor may be in the graph's memory (owned), be a view of an argument (input), or be a tensor that the function returns
from its state, such as a buffer of a module (held). Only owned results are copied. The others are returned as in eager: a view of
the caller's argument, or the held tensor itself.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch

from rocsolid.errors import StaleOutputError, UsageError
from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.call import CallTensors, CannotCapture
from rocsolid.torchapi.graphs.batched_copy import foreach_copy
from rocsolid.torchapi.graphs.replay_checks import element_span, storage_id
from rocsolid.torchapi.pytree import (
    CallResult,
    Flattened,
    Leaf,
    Part,
    constant_key,
    flatten_result,
    open_container,
)

MakeResult = Callable[[Sequence[Any], Mapping[int, int]], Any]
_STALE_MESSAGE: Final = (
    "stale output: a later call of the captured function has overwritten this tensor\n"
    'fix: use it before the next call, keep a copy (`y = fast(x).clone()`), or capture with outputs="clone"'
)


class StaleTensor(torch.Tensor):  # type: ignore[misc]
    """The class of an output that a later replay has overwritten; every use raises StaleOutputError."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise StaleOutputError(_STALE_MESSAGE)


class LengthRelation(NamedTuple):
    """A dimension of a result that depends on a bucketed length: its size is `factor * length + offset`."""

    dim: int
    factor: int
    offset: int
    group: int


class _InputView(NamedTuple):
    """A result that is a view of one of the call's tensors."""

    tensor: int  # index into the call's tensors
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # relative to the call's tensor
    is_tensor: bool  # it is that tensor itself
    same_layout: bool  # it is a view of the whole tensor
    requires_grad: bool


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The results of one graph, and where their memory is."""

    tree: Flattened
    owned: list[Any]  # results in the graph's memory
    plan: list[
        tuple[str, Any]
    ]  # for each leaf: ("owned", index), ("input", _InputView), ("held", value), ("view", tensor) or ("part", Part)
    relations: Mapping[int, tuple[LengthRelation, ...]] = field(default_factory=dict)  # by index of the owned result

    @classmethod
    def of(
        cls, result: Any, static_inputs: Sequence[Any], state_tensors: Sequence[Any], padded: Collection[int] = ()
    ) -> "Outputs":
        """Sort the leaves of a captured result by where their memory is.

        `state_tensors` are tensors that the function reaches without arguments, `padded` the indices of padded buffers.
        """
        tree = flatten_result(result)
        inputs = {storage_id(static): index for index, static in reversed(list(enumerate(static_inputs)))}
        held_storages = {storage_id(tensor) for tensor in state_tensors}
        held_ids = set(map(id, state_tensors))
        owned: list[Any] = []
        plan: list[tuple[str, Any]] = []
        for leaf in tree.leaves:
            value = leaf.value
            if isinstance(value, Part):
                plan.append(("part", value))
            elif not isinstance(value, torch.Tensor):
                if open_container(value) is None and constant_key(value) is None and not isinstance(value, type):
                    kind = type(value)
                    raise CannotCapture(
                        Reason.RESULT_TYPE,
                        f"`{leaf.path}` is a {kind.__module__}.{kind.__qualname__}, which a replay cannot rebuild",
                        fix="return tensors, numbers, containers of them, or a registered pytree node",
                    )
                plan.append(("held", value))
            elif view := _input_view(leaf, static_inputs, inputs, padded):
                plan.append(("input", view))
            elif storage_id(value) in held_storages:
                plan.append(("held" if id(value) in held_ids else "view", value))
            else:
                plan.append(("owned", len(owned)))
                owned.append(value.detach())
        return cls(tree=tree, owned=owned, plan=plan)

    @property
    def has_caches(self) -> bool:
        """Whether there are caches among the arguments."""
        return isinstance(self.tree.structure, tuple) and self.tree.structure[0] is CallResult

    @property
    def owned_in_caches(self) -> str:
        """The path of the first owned tensor in a cache among the arguments; empty if there is none."""
        leaves = list(zip(self.tree.leaves, self.plan, strict=True))
        structure = self.tree.structure
        in_caches = leaves[structure[1] :] if isinstance(structure, tuple) and self.has_caches else []
        return next((leaf.path for leaf, (kind, _) in in_caches if kind == "owned"), "")

    def current(self, lengths: Mapping[int, int]) -> list[Any]:
        """Return the owned results without padding, still in the graph's memory."""
        if not self.relations:
            return self.owned
        return [self._unpad(index, tensor, lengths) for index, tensor in enumerate(self.owned)]

    def _unpad(self, index: int, tensor: Any, lengths: Mapping[int, int]) -> Any:
        for relation in self.relations.get(index, ()):
            size = relation.factor * lengths[relation.group] + relation.offset
            if size != tensor.shape[relation.dim]:
                tensor = tensor.narrow(relation.dim, 0, size)
        return tensor

    def unpad(self, leaves: Sequence[Leaf], lengths: Mapping[int, int]) -> list[Leaf]:
        """Return the leaves of a padded result without padding; leaves that do not depend on a length stay as they are."""
        if len(leaves) != len(self.plan):
            return list(leaves)
        return [
            Leaf(leaf.path, self._unpad(item, leaf.value, lengths)) if kind == "owned" else leaf
            for leaf, (kind, item) in zip(leaves, self.plan, strict=True)
        ]

    def assemble(self, owned: Sequence[Any], tensors: Sequence[Any]) -> Any:
        """Build the result from these owned tensors, for a call with these tensors as arguments.

        This fills in the parts of the caller's caches; without parts, new ones.
        """
        parts = dict(enumerate(tensors.parts)) if isinstance(tensors, CallTensors) else {}
        result = self.tree.unflatten([self._leaf(kind, item, owned, tensors, parts) for kind, item in self.plan])
        return result.with_parts(parts) if isinstance(result, CallResult) else result

    def _leaf(self, kind: str, item: Any, owned: Sequence[Any], tensors: Sequence[Any], parts: dict[int, Any]) -> Any:
        if kind == "owned":
            return owned[item]
        if kind == "part":
            if item.number not in parts:
                parts[item.number] = item.new()
            return parts[item.number]
        if kind == "held":
            return set(item) if isinstance(item, set) else item
        if kind == "view":
            return item.as_strided(item.shape, item.stride(), item.storage_offset())
        base = tensors[item.tensor]
        if item.is_tensor:
            return base
        if not item.requires_grad:
            base = base.detach()
        if item.same_layout:
            return base.view_as(base)
        return base.as_strided(item.shape, item.stride, base.storage_offset() + item.offset)


def _input_view(
    leaf: Leaf, static_inputs: Sequence[Any], inputs: Mapping[int, int], padded: Collection[int]
) -> _InputView | None:
    value = leaf.value
    index = inputs.get(storage_id(value))
    if index is None or not value.numel():
        return None
    static = static_inputs[index]
    if value.dtype != static.dtype:
        problem = f"`{leaf.path}` is a view of an argument with another dtype, which a replay cannot rebuild"
        raise CannotCapture(Reason.RESULT_TYPE, problem, fix="return a copy: .clone()")
    offset = value.storage_offset() - static.storage_offset()
    same_layout = offset == 0 and value.shape == static.shape and value.stride() == static.stride()
    if index in padded and not same_layout:
        return None
    return _InputView(
        index, tuple(value.shape), tuple(value.stride()), offset, value is static, same_layout, value.requires_grad
    )


def make_result_function(outputs: Outputs, mode: str) -> MakeResult:
    """Return the fastest function that makes the caller's result after a replay, for `outputs=mode`."""
    if outputs.plan == [("owned", 0)] and outputs.tree.structure == "*" and not outputs.relations:
        return {"clone": _one_clone, "alias": _one_alias, "out": _one_static}[mode](outputs.owned[0])
    owned_results = {"clone": _clones, "alias": _aliases, "out": _statics}[mode](outputs)
    if outputs.has_caches:
        return _with_caches(outputs, owned_results, mode)

    def make_result(tensors: Sequence[Any], lengths: Mapping[int, int]) -> Any:
        return outputs.assemble(owned_results(lengths), tensors)

    return make_result


def _with_caches(
    outputs: Outputs, owned_results: Callable[[Mapping[int, int]], Sequence[Any]], mode: str
) -> MakeResult:
    """Return a function that also leaves the caller's caches as eager does."""
    if mode != "clone" and outputs.owned_in_caches:
        problem = (
            f"`{outputs.owned_in_caches}` is a new tensor, and with outputs={mode!r} a later call would overwrite it"
        )
        raise CannotCapture(
            Reason.RESULT_TYPE, problem, fix='use outputs="clone", or a StaticCache that was used before'
        )

    def make_result(tensors: Sequence[Any], lengths: Mapping[int, int]) -> Any:
        return outputs.assemble(owned_results(lengths), tensors).value

    return make_result


def _clones(outputs: Outputs) -> Callable[[Mapping[int, int]], Sequence[Any]]:
    owned = outputs.owned
    if outputs.relations or len(owned) < 2:  # noqa: PLR2004 - two tensors are the fewest that can be copied together
        return lambda lengths: [tensor.clone() for tensor in outputs.current(lengths)]
    if max(Counter(map(storage_id, owned)).values()) > 1:
        return lambda _: _clones_that_share(owned)
    copy = foreach_copy()

    def clones(_: Mapping[int, int]) -> Sequence[Any]:
        made = [torch.empty_like(tensor) for tensor in owned]
        copy(made, owned)
        return made

    return clones


def _clones_that_share(owned: Sequence[Any]) -> list[Any]:
    """Return copies that share memory with each other where the originals do."""
    bases: dict[int, tuple[Any, int]] = {}
    groups: dict[int, list[Any]] = {}
    for tensor in owned:
        groups.setdefault(storage_id(tensor), []).append(tensor)
    for storage, group in groups.items():
        dtypes = {tensor.dtype for tensor in group}
        if len(group) == 1 or len(dtypes) > 1:
            continue
        first = min(tensor.storage_offset() for tensor in group)
        last = max(tensor.storage_offset() + element_span(tensor.shape, tensor.stride()) for tensor in group)
        bases[storage] = group[0].as_strided((last - first,), (1,), first).clone(), first
    made = []
    for tensor in owned:
        base, first = bases.get(storage_id(tensor), (None, 0))
        if base is None:
            made.append(tensor.clone())
        else:
            made.append(base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset() - first))
    return made


def _aliases(outputs: Outputs) -> Callable[[Mapping[int, int]], Sequence[Any]]:
    """Return a function that makes views of the graph's memory, and makes the views of the call before stale."""
    last_views: list[weakref.ref[Any]] = []

    def aliases(lengths: Mapping[int, int]) -> Sequence[Any]:
        for reference in last_views:
            old = reference()
            if old is not None:
                old.__class__ = StaleTensor
        made = [tensor.detach() for tensor in outputs.current(lengths)]
        last_views[:] = map(weakref.ref, made)
        return made

    return aliases


def _one_clone(static: Any) -> MakeResult:
    return lambda _tensors, _lengths: static.clone()


def _one_static(static: Any) -> MakeResult:
    return lambda _tensors, _lengths: static


def _one_alias(static: Any) -> MakeResult:
    last_view: Callable[[], Any] = lambda: None  # noqa: E731 - like a dead weak reference
    refer, alias = weakref.ref, static.detach

    def make_result(_tensors: Sequence[Any], _lengths: Mapping[int, int]) -> Any:
        nonlocal last_view
        old = last_view()
        if old is not None:
            old.__class__ = StaleTensor
        made = alias()
        last_view = refer(made)
        return made

    return make_result


def _statics(outputs: Outputs) -> Callable[[Mapping[int, int]], Sequence[Any]]:
    return outputs.current


def _structure_text(flat: Flattened) -> str:
    """Return the structure as text: `{'y': Tensor}`."""
    return repr(flat.unflatten([type(leaf.value).__name__ for leaf in flat.leaves])).replace("'Tensor'", "Tensor")


def copy_into_out(out: Any, result: Any) -> Any:
    """Copy a result into the caller's `out=` tensors, which have the same structure."""
    targets, sources = flatten_result(out, "out"), flatten_result(result, "out")
    if targets.structure != sources.structure:
        msg = f"out= must have the same structure as the result, {_structure_text(sources)}; got {_structure_text(targets)}"
        raise UsageError(msg)
    for target, source in zip(targets.leaves, sources.leaves, strict=True):
        if isinstance(source.value, torch.Tensor):
            fits = isinstance(target.value, torch.Tensor) and target.value.shape == source.value.shape
            if not fits or target.value.dtype != source.value.dtype:
                required = f"{source.value.dtype}{list(source.value.shape)}".replace("torch.", "")
                msg = f"`{target.path}` must be a {required} tensor, like the result"
                raise UsageError(msg)
            target.value.copy_(source.value)
    return out
