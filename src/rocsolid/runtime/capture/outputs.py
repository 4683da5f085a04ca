"""What a replay hands to the caller: copies, aliases that know when they are stale, or the caller's own tensors, filled.

A result may be memory of the graph, a view of an argument, or a tensor that the function merely holds. Only the first kind is
copied; the others are handed out as eager would: views of the caller's argument, and the held tensor itself.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

from rocsolid.errors import StaleOutputError, UsageError
from rocsolid.model.capture_report import Reason
from rocsolid.runtime.capture.call import CannotCapture
from rocsolid.torchapi.graphs.fast_checks import grouped_copy
from rocsolid.torchapi.graphs.memory import reach, storage_number
from rocsolid.torchapi.pytree import Flattened, Leaf, constant_key, flatten, open_container

Give = Callable[[Sequence[Any], Mapping[int, int]], Any]
_STALE: Final = (
    "this tensor was handed out with outputs='alias' and a later call has overwritten its memory: use it before the next "
    "call, clone it, or capture with outputs='clone'"
)


class StaleTensor(torch.Tensor):  # type: ignore[misc]
    """An alias whose memory a later replay has overwritten; any use of it says so."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise StaleOutputError(_STALE)


class Follows(NamedTuple):
    """A dimension of a result that follows a bucketed length: its size is `times * length + plus`."""

    dim: int
    times: int
    plus: int
    group: int


class _Alias(NamedTuple):
    """A result that is a view of one of the call's tensors."""

    tensor: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # from where the call's tensor begins
    whole: bool  # it is that tensor, as it came


@dataclass(kw_only=True)
class Outputs:
    """The results of one graph, and how they are handed out."""

    tree: Flattened
    owned: list[Any]  # results in the graph's memory
    plan: list[tuple[str, Any]]  # for each leaf: ("owned", number), ("input", _Alias) or ("as it is", value)
    follows: dict[int, tuple[Follows, ...]]  # by number of the owned result

    @classmethod
    def of(cls, result: Any, statics: Sequence[Any], held: Sequence[Any], padded: Collection[int] = ()) -> "Outputs":
        """Sort a captured result by where its memory is.

        `held` are tensors that the function reaches by itself, `padded` the numbers of buffers longer than the call's tensors.
        """
        tree = flatten(result, "result")
        inputs = {storage_number(static): number for number, static in reversed(list(enumerate(statics)))}
        kept = {storage_number(tensor) for tensor in held}
        owned: list[Any] = []
        plan: list[tuple[str, Any]] = []
        for leaf in tree.leaves:
            value = leaf.value
            if not isinstance(value, torch.Tensor):
                if open_container(value) is None and constant_key(value) is None:
                    kind = type(value)
                    detail = (
                        f"{leaf.path} is a {kind.__module__}.{kind.__qualname__}, which cannot be put together again after a "
                        "replay: return tensors, numbers, or a registered pytree node"
                    )
                    raise CannotCapture(Reason.RESULT, detail)
                plan.append(("as it is", value))
            elif alias := _of_input(value, statics, inputs, padded):
                plan.append(("input", alias))
            elif storage_number(value) in kept:
                plan.append(("as it is", value))
            else:
                plan.append(("owned", len(owned)))
                owned.append(value.detach())
        return cls(tree=tree, owned=owned, plan=plan, follows={})

    def current(self, lengths: Mapping[int, int]) -> list[Any]:
        """The owned results with padding cut off, still in the graph's memory."""
        if not self.follows:
            return self.owned
        return [self._cut(number, tensor, lengths) for number, tensor in enumerate(self.owned)]

    def _cut(self, number: int, tensor: Any, lengths: Mapping[int, int]) -> Any:
        for follow in self.follows.get(number, ()):
            size = follow.times * lengths[follow.group] + follow.plus
            if size != tensor.shape[follow.dim]:
                tensor = tensor.narrow(follow.dim, 0, size)
        return tensor

    def cut(self, leaves: Sequence[Leaf], lengths: Mapping[int, int]) -> list[Leaf]:
        """The leaves of a padded result, with the padding cut off where it follows a length; others are left alone."""
        if len(leaves) != len(self.plan):
            return list(leaves)
        return [
            Leaf(leaf.path, self._cut(what, leaf.value, lengths)) if kind == "owned" else leaf
            for leaf, (kind, what) in zip(leaves, self.plan, strict=True)
        ]

    def put_together(self, owned: Sequence[Any], tensors: Sequence[Any]) -> Any:
        """The result around these tensors."""
        return self.tree.unflatten([self._leaf(kind, what, owned, tensors) for kind, what in self.plan])

    def _leaf(self, kind: str, what: Any, owned: Sequence[Any], tensors: Sequence[Any]) -> Any:
        if kind == "owned":
            return owned[what]
        if kind == "as it is":
            return what
        base = tensors[what.tensor]
        if what.whole:
            return base
        return base.as_strided(what.shape, what.stride, base.storage_offset() + what.offset)


def _of_input(value: Any, statics: Sequence[Any], inputs: Mapping[int, int], padded: Collection[int]) -> _Alias | None:
    number = inputs.get(storage_number(value))
    if number is None or not value.numel():
        return None
    static = statics[number]
    offset = value.storage_offset() - static.storage_offset()
    whole = (
        offset == 0
        and value.shape == static.shape
        and value.stride() == static.stride()
        and value.dtype == static.dtype
    )
    if number in padded and not whole:
        return None
    return _Alias(number, tuple(value.shape), tuple(value.stride()), offset, whole)


def giver(outputs: Outputs, mode: str) -> Give:
    """How results are handed out, as quickly as their structure allows."""
    if outputs.plan == [("owned", 0)] and outputs.tree.structure == "*" and not outputs.follows:
        return {"clone": _one_clone, "alias": _one_alias, "out": _one_borrowed}[mode](outputs.owned[0])
    handing = {"clone": _clones, "alias": _aliases, "out": _borrowed}[mode](outputs)

    def give(tensors: Sequence[Any], lengths: Mapping[int, int]) -> Any:
        return outputs.put_together(handing(lengths), tensors)

    return give


def _clones(outputs: Outputs) -> Callable[[Mapping[int, int]], Sequence[Any]]:
    owned = outputs.owned
    if outputs.follows or len(owned) < 2:  # noqa: PLR2004 - a pair is the first that can be copied at once
        return lambda lengths: [tensor.clone() for tensor in outputs.current(lengths)]
    if max(Counter(map(storage_number, owned)).values()) > 1:
        return lambda _: _clones_that_share(owned)
    copy = grouped_copy()

    def clones(_: Mapping[int, int]) -> Sequence[Any]:
        made = [torch.empty_like(tensor) for tensor in owned]
        copy(made, owned)
        return made

    return clones


def _clones_that_share(owned: Sequence[Any]) -> list[Any]:
    """Copies that share memory with each other where the originals do."""
    bases: dict[int, tuple[Any, int]] = {}
    groups: dict[int, list[Any]] = {}
    for tensor in owned:
        groups.setdefault(storage_number(tensor), []).append(tensor)
    for storage, group in groups.items():
        kinds = {tensor.dtype for tensor in group}
        if len(group) == 1 or len(kinds) > 1:
            continue
        first = min(tensor.storage_offset() for tensor in group)
        last = max(tensor.storage_offset() + reach(tensor.shape, tensor.stride()) for tensor in group)
        bases[storage] = group[0].as_strided((last - first,), (1,), first).clone(), first
    made = []
    for tensor in owned:
        base, first = bases.get(storage_number(tensor), (None, 0))
        if base is None:
            made.append(tensor.clone())
        else:
            made.append(base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset() - first))
    return made


def _aliases(outputs: Outputs) -> Callable[[Mapping[int, int]], Sequence[Any]]:
    """Views of the graph's own memory. Those handed out before and still held become stale at this moment."""
    handed: list[weakref.ref[Any]] = []

    def aliases(lengths: Mapping[int, int]) -> Sequence[Any]:
        for reference in handed:
            old = reference()
            if old is not None:
                old.__class__ = StaleTensor
        made = [tensor.detach() for tensor in outputs.current(lengths)]
        handed[:] = map(weakref.ref, made)
        return made

    return aliases


def _one_clone(static: Any) -> Give:
    return lambda _tensors, _lengths: static.clone()


def _one_borrowed(static: Any) -> Give:
    return lambda _tensors, _lengths: static


def _one_alias(static: Any) -> Give:
    handed: Callable[[], Any] = lambda: None  # noqa: E731 - a reference that is dead from the start
    refer, alias = weakref.ref, static.detach

    def give(_tensors: Sequence[Any], _lengths: Mapping[int, int]) -> Any:
        nonlocal handed
        old = handed()
        if old is not None:
            old.__class__ = StaleTensor
        made = alias()
        handed = refer(made)
        return made

    return give


def _borrowed(outputs: Outputs) -> Callable[[Mapping[int, int]], Sequence[Any]]:
    return outputs.current


def copy_into(given: Any, result: Any) -> Any:
    """Fill the caller's tensors with a result of the same structure."""
    targets, sources = flatten(given, "out"), flatten(result, "out")
    if targets.structure != sources.structure:
        msg = f"out= has another structure than the result: {targets.structure} and not {sources.structure}"
        raise UsageError(msg)
    for target, source in zip(targets.leaves, sources.leaves, strict=True):
        if isinstance(source.value, torch.Tensor):
            fits = isinstance(target.value, torch.Tensor) and target.value.shape == source.value.shape
            if not fits or target.value.dtype != source.value.dtype:
                was = f"{source.value.dtype}{list(source.value.shape)}".replace("torch.", "")
                msg = f"{target.path} must be a tensor of {was} to take the result"
                raise UsageError(msg)
            target.value.copy_(source.value)
    return given
