"""One call of a captured function: its arguments by name, and the key under which a graph answers it."""

import inspect
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from rocsolid.model.bucket import Bucket
from rocsolid.model.capture_report import Reason
from rocsolid.runtime.signature import CallSignature
from rocsolid.torchapi.pytree import Flattened, Leaf, compared_by_identity, constant_key, flatten


class CannotCapture(Exception):  # noqa: N818 - a way out, not an error: the call runs eagerly
    """Why a call cannot be answered by a graph."""

    def __init__(self, reason: Reason, detail: str, place: str = "") -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.place = place


class Spec(NamedTuple):
    """What must be the same about a tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    device: Any
    requires_grad: bool

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        dense = _dense_stride(self.shape)
        layout = "" if self.stride in ((), dense) else f" strided {list(self.stride)}"
        grad = " with gradient" if self.requires_grad else ""
        device = "" if self.device.type == "cpu" else f" on {self.device}"
        return f"{kind}{list(self.shape)}{layout}{grad}{device}"


def spec_of(tensor: Any) -> Spec:
    """A tensor's spec as it is."""
    return Spec(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device, tensor.requires_grad)


def _dense_stride(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class Length(NamedTuple):
    """A dimension that was bucketed in one call."""

    tensor: int  # which of the call's tensors
    dim: int
    length: int
    size: int
    pad: float
    group: int  # lengths that were equal in this call share a number


def calling_signature(function: Callable[..., Any]) -> inspect.Signature:
    """How a function or module is called; of a compiled module, how the module itself is, for its wrapper takes anything.

    Raises TypeError or ValueError where a function does not tell.
    """
    plain = getattr(function, "_orig_mod", function)
    return inspect.signature(getattr(plain, "forward", plain))


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """How a function's arguments are called."""

    positional: tuple[str, ...] = ()
    rest: str = ""  # the name behind the star
    order: tuple[str, ...] = ()
    defaults: Mapping[str, Hashable] = field(default_factory=dict)  # tokens of those that are constants

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Parameters":
        """As far as the function tells them."""
        try:
            parameters = calling_signature(function).parameters.values()
        except (TypeError, ValueError):
            return cls()
        positional = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        tokens = {p.name: constant_key(p.default) for p in parameters if p.default is not p.empty}
        return cls(
            positional=positional,
            rest=next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), ""),
            order=tuple(p.name for p in parameters),
            defaults={name: known for name, known in tokens.items() if known is not None},
        )

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
        """Every argument with its name and the expression that reaches it, in the same order however it was passed."""
        given = {self._name(number): (f"args[{number}]", value) for number, value in enumerate(args)}
        given.update({name: (f"kwargs[{name!r}]", value) for name, value in kwargs.items()})
        rank = {name: number for number, name in enumerate(self.order)}
        late = len(rank)
        for name in sorted(given, key=lambda n: (rank.get(n, late), n if n in kwargs else "")):
            yield name, *given[name]

    def _name(self, number: int) -> str:
        if number < len(self.positional):
            return self.positional[number]
        over = number - len(self.positional)
        return f"{self.rest}[{over}]" if self.rest else f"argument {number}"


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument, taken apart."""

    name: str
    expression: str
    tree: Flattened


@dataclass(kw_only=True)
class Call:
    """A call with everything that decides which graph answers it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arguments: tuple[Argument, ...]
    tensors: tuple[Leaf, ...]  # each tensor once
    places: tuple[int, ...]  # for each tensor leaf, in order, which of the tensors it is
    specs: tuple[Spec, ...]  # of the tensors as the graph sees them
    lengths: tuple[Length, ...]
    parts: tuple[tuple[str, Hashable], ...]  # the arguments' share of the key
    state: tuple[tuple[str, Hashable], ...]
    kept: tuple[Any, ...]  # objects that the key knows by identity, which must not die before it

    @cached_property
    def key(self) -> Hashable:
        """What a graph for this call is found by."""
        return self.parts, self.state

    @property
    def device(self) -> Any:
        """Where the call's tensors are: the device, when any is on one."""
        import torch

        return next((x.value.device for x in self.tensors if x.value.device.type != "cpu"), torch.device("cpu"))

    @property
    def lengths_by_group(self) -> dict[int, int]:
        """How long the bucketed dimensions are in this call."""
        return {length.group: length.length for length in self.lengths}

    @property
    def signature(self) -> CallSignature:
        """The same for a reader."""
        text = {f"argument {path!r}": str(what) for path, what in _described(self)}
        return CallSignature(parts={**text, **{name: _said(value) for name, value in self.state}})

    def rebuilt(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with other tensors in the places of these."""
        import torch

        places = iter(self.places)
        args: list[Any] = [None] * len(self.args)
        kwargs: dict[str, Any] = dict.fromkeys(self.kwargs)
        for argument in self.arguments:
            leaves = [
                tensors[next(places)] if isinstance(leaf.value, torch.Tensor) else leaf.value
                for leaf in argument.tree.leaves
            ]
            value = argument.tree.unflatten(leaves)
            if argument.expression.startswith("args["):
                args[int(argument.expression[5:-1])] = value
            else:
                kwargs[argument.name] = value
        return args, kwargs


def _described(call: Call) -> Iterator[tuple[str, object]]:
    import torch

    places = iter(call.places)
    for argument in call.arguments:
        for leaf in argument.tree.leaves:
            if isinstance(leaf.value, torch.Tensor):
                yield leaf.path, call.specs[next(places)]
            else:
                text = repr(leaf.value)
                most = 60
                yield leaf.path, text if len(text) <= most else type(leaf.value).__name__


def _said(value: Hashable) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def take_call(
    parameters: Parameters,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    static: Collection[str] = (),
    buckets: Mapping[str, Sequence[Bucket]] | None = None,
    state: tuple[tuple[str, Hashable], ...] = (),
) -> Call:
    """A call, taken apart; raises CannotCapture with the path of an argument that no key can hold."""
    import torch

    arguments = tuple(
        Argument(name=name, expression=expression, tree=_tree(value, name, static))
        for name, expression, value in parameters.named(args, kwargs)
    )
    seen: dict[int, int] = {}
    tensors: list[Leaf] = []
    places: list[int] = []
    parts: list[tuple[str, Hashable]] = []
    kept: list[Any] = []
    for argument in arguments:
        tokens: list[Hashable] = []
        for leaf in argument.tree.leaves:
            if isinstance(leaf.value, torch.Tensor):
                fit_for_capture(leaf)
                place = seen.setdefault(id(leaf.value), len(tensors))
                if place == len(tensors):
                    tensors.append(leaf)
                places.append(place)
                tokens.append(("tensor", place))
            else:
                tokens.append(_token(leaf, argument, static, kept))
        parts.append((argument.name, (argument.tree.structure, tuple(tokens))))
    given = {argument.name for argument in arguments}
    parts += [(name, ("*", (known,))) for name, known in parameters.defaults.items() if name not in given]
    _refuse_names_of_nothing(buckets or {}, [leaf.path for leaf in tensors])
    lengths, specs = _bucketed(tensors, buckets or {})
    shared = tuple((length.tensor, length.dim, length.group) for length in lengths)
    return Call(
        args=tuple(args),
        kwargs=dict(kwargs),
        arguments=arguments,
        tensors=tuple(tensors),
        places=tuple(places),
        specs=specs,
        lengths=lengths,
        parts=(*sorted(parts, key=lambda part: part[0]), ("tensors", specs), ("lengths", shared)),
        state=state,
        kept=tuple(kept),
    )


def _tree(value: Any, name: str, static: Collection[str]) -> Flattened:
    if name in static:
        return Flattened((Leaf(name, value),), "*", next)
    return flatten(value, name)


def _token(leaf: Leaf, argument: Argument, static: Collection[str], kept: list[Any]) -> Hashable:
    if argument.name in static or compared_by_identity(leaf.value):
        kept.append(leaf.value)
        fields = vars(leaf.value) if argument.name in static and hasattr(leaf.value, "__dict__") else {}
        constants = tuple((name, known) for name, value in fields.items() if (known := constant_key(value)) is not None)
        return "object", id(leaf.value), constants
    known = constant_key(leaf.value)
    if known is None:
        kind = type(leaf.value)
        raise CannotCapture(
            Reason.ARGUMENT,
            f"argument {leaf.path!r} is a {kind.__module__}.{kind.__qualname__}, whose value no key can hold: pass its tensors "
            f"and numbers, make it a dataclass, register it as a pytree node, or, when it never changes, "
            f"say static=({argument.name!r},)",
        )
    return known


def fit_for_capture(leaf: Leaf) -> None:
    """Raises CannotCapture for a tensor that has no fixed place in memory, or not one alone."""
    import torch

    tensor = leaf.value
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        why = f"a {type(tensor).__module__}.{type(tensor).__qualname__}"
    elif tensor.layout is not torch.strided:
        why = f"laid out as {str(tensor.layout).removeprefix('torch.')}"
    elif tensor.is_quantized:
        why = "quantized"
    elif tensor.is_conj() or tensor.is_neg():
        why = "a lazy conjugate or negative view: call .resolve_conj() or .resolve_neg() on it"
    elif tensor.device.type == "meta":
        why = "on the meta device"
    else:
        return
    raise CannotCapture(
        Reason.ARGUMENT, f"argument {leaf.path!r} is {why}, which a graph's fixed buffers cannot stand in for"
    )


def _refuse_names_of_nothing(buckets: Mapping[str, Sequence[Bucket]], paths: Sequence[str]) -> None:
    """A name that is written wrongly would leave every length without its bucket; one that is left out this time does not."""
    if buckets and not any(path in buckets for path in paths):
        named = ", ".join(map(repr, buckets))
        detail = f"buckets are given for {named}, and the call has no such tensor; it has {', '.join(map(repr, paths))}"
        raise CannotCapture(Reason.BUCKET, detail)


def _bucketed(
    tensors: Sequence[Leaf], buckets: Mapping[str, Sequence[Bucket]]
) -> tuple[tuple[Length, ...], tuple[Spec, ...]]:
    lengths: list[Length] = []
    groups: dict[int, int] = {}
    specs = []
    for number, leaf in enumerate(tensors):
        spec = spec_of(leaf.value)
        shape = list(spec.shape)
        for bucket in buckets.get(leaf.path, ()):
            dim = bucket.dim if bucket.dim >= 0 else bucket.dim + len(shape)
            if not 0 <= dim < len(shape):
                msg = (
                    f"argument {leaf.path!r} has {len(shape)} dimensions, and its bucket is for dimension {bucket.dim}"
                )
                raise CannotCapture(Reason.BUCKET, msg)
            length = shape[dim]
            size = bucket.fit(length)
            if size is None:
                why = "is empty" if length == 0 else f"is longer than the largest bucket, {bucket.sizes[-1]}"
                raise CannotCapture(Reason.BUCKET, f"argument {leaf.path!r} of length {length} {why}")
            group = groups.setdefault(length, len(groups))
            lengths.append(Length(number, dim, length, size, bucket.pad, group))
            shape[dim] = size
        if leaf.path in buckets:
            spec = spec._replace(shape=tuple(shape), stride=_dense_stride(shape))
        specs.append(spec)
    return tuple(lengths), tuple(specs)
