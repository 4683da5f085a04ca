"""One call of a captured function: its arguments by name, the torch state, and the cache key made from both."""

import inspect
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rocsolid.model.bucket import Bucket
from rocsolid.model.capture_report import Reason
from rocsolid.model.code_line import CodeLine
from rocsolid.runtime.signature import CallSignature
from rocsolid.torchapi.dynamo.compiled_function import original_function
from rocsolid.torchapi.graphs.replay_checks import default_device
from rocsolid.torchapi.pytree import (
    Flattened,
    Leaf,
    caches_in,
    compared_by_identity,
    constant_key,
    flatten,
    flatten_argument,
    open_outside_caches,
    parts_of,
    run_with_parts,
)

_MAX_VALUE_LENGTH = 60  # of a constant's repr; a longer one is replaced by its type


class CannotCapture(Exception):  # noqa: N818 - not an error for the caller: the call runs in eager
    """Why a call cannot be captured: the problem, the source line where it is known, notes, and the fix.

    `module` is the one that was running, where the traceback does not show it.
    """

    def __init__(
        self,
        reason: Reason,
        problem: str,
        *,
        fix: str = "",
        code: CodeLine | None = None,
        notes: Sequence[str] = (),
        module: Any = None,
    ) -> None:
        code_lines = [f"  {line}" for line in code.lines(_short_location(code))] if code else []
        self.message = "\n".join([problem, *code_lines, *notes, *([f"fix: {fix}"] if fix else [])])
        super().__init__(self.message)
        self.reason = reason
        self.location = code.location if code else ""
        self.module = module


def _short_location(code: CodeLine) -> str:
    """Return `file:line`, with the path relative to the working directory if the file is inside it."""
    return code.location.removeprefix(f"{Path.cwd()}/")


class TensorSpec(NamedTuple):
    """The properties of a tensor that are part of the cache key."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    device: Any
    requires_grad: bool

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        dense = _dense_stride(self.shape)
        stride = "" if self.stride in ((), dense) else f" stride {list(self.stride)}"
        grad = " requires_grad" if self.requires_grad else ""
        device = "" if self.device.type == "cpu" else f" on {self.device}"
        return f"{dtype}{list(self.shape)}{stride}{grad}{device}"


def spec_of(tensor: Any) -> TensorSpec:
    """Return the spec of a tensor."""
    return TensorSpec(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device, tensor.requires_grad)


def _dense_stride(shape: Sequence[int]) -> tuple[int, ...]:
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


class BucketedDim(NamedTuple):
    """One dimension of one tensor that is padded to a bucket size in this call."""

    tensor: int  # index into the call's tensors
    dim: int
    length: int
    size: int
    pad: float
    group: int  # dimensions of equal length in this call have the same group


def call_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function or module.

    For a compiled module it is that of the module inside, because the wrapper accepts any arguments.

    Raises TypeError or ValueError where Python cannot tell the signature.
    """
    uncompiled = original_function(function)
    return inspect.signature(getattr(uncompiled, "forward", uncompiled))


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameter names of a function."""

    positional: tuple[str, ...] = ()
    var_positional: str = ""  # the name of `*args`
    order: tuple[str, ...] = ()  # all names, in the order of the signature
    defaults: Mapping[str, Hashable] = field(default_factory=dict)  # keys of the defaults that are constants

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Parameters":
        """Return the parameters; empty where Python cannot tell the signature."""
        try:
            parameters = call_signature(function).parameters.values()
        except (TypeError, ValueError):
            return cls()
        positional = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        keys = {p.name: constant_key(p.default) for p in parameters if p.default is not p.empty}
        return cls(
            positional=positional,
            var_positional=next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), ""),
            order=tuple(p.name for p in parameters),
            defaults={name: key for name, key in keys.items() if key is not None},
        )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
        """Yield (name, expression, value) of every argument, in the same order however the arguments are passed.

        The expression reads the argument from `args` and `kwargs`.
        """
        passed = {self._name(position): (f"args[{position}]", value) for position, value in enumerate(args)}
        passed.update({name: (f"kwargs[{name!r}]", value) for name, value in kwargs.items()})
        rank = {name: position for position, name in enumerate(self.order)}
        last = len(rank)
        for name in sorted(passed, key=lambda n: (rank.get(n, last), n if n in kwargs else "")):
            yield name, *passed[name]

    def _name(self, position: int) -> str:
        if position < len(self.positional):
            return self.positional[position]
        extra = position - len(self.positional)
        return f"{self.var_positional}[{extra}]" if self.var_positional else f"argument {position}"


class CallTensors(tuple[Any, ...]):  # noqa: SLOT001 - it has an attribute
    """The tensors of a call, and the parts of the caches among its arguments."""

    parts: Sequence[Any] = ()

    @classmethod
    def of(cls, tensors: Sequence[Any], parts: Sequence[Any]) -> "CallTensors":
        """Return the tensors with these parts."""
        self = cls(tensors)
        self.parts = parts
        return self


class HostNumber(NamedTuple):
    """A CPU tensor of one number inside a cache, in a call on a GPU. It belongs to the cache key, as a number does."""

    value: Any
    dtype: Any

    def tensor(self) -> Any:
        """Return a new tensor."""
        return torch.tensor(self.value, dtype=self.dtype, device="cpu")


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument, flattened."""

    name: str
    expression: str  # reads it from `args` and `kwargs`: `args[0]` or `kwargs['x']`
    tree: Flattened
    static: bool = False  # named in `static=`: passed on as it is, even if it is a tensor
    has_caches: bool = False
    caches: tuple[Leaf, ...] = ()  # KV caches of transformers in it, with their paths; not those of `static=`
    cache_structures: tuple[Hashable, ...] = ()
    outside_caches: Flattened | None = None  # with each cache as one leaf, if there is any

    def value(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the argument as it was passed."""
        return args[int(self.expression[5:-1])] if self.expression.startswith("args[") else kwargs[self.name]

    def copied(self, leaf: Leaf) -> Any:
        """Return the value of a leaf for a run of ours: a copy of a set, which the function may change."""
        if isinstance(leaf.value, HostNumber):
            return leaf.value.tensor()
        return set(leaf.value) if isinstance(leaf.value, set) and not self.static else leaf.value

    def is_input(self, leaf: Leaf) -> bool:
        """Return whether a leaf of the argument is a tensor that a replay copies into a static buffer."""
        return isinstance(leaf.value, torch.Tensor) and not self.static

    def rebuild(self, tensors: Iterator[Any]) -> Any:
        """Return the argument with these tensors in place of its own."""
        return self.tree.unflatten(
            [next(tensors) if self.is_input(leaf) else self.copied(leaf) for leaf in self.tree.leaves]
        )

    def has_changed_set(self, key: Any) -> bool:
        """Return whether a set in the argument has other items than when the key was made."""
        pairs = zip(self.tree.leaves, key[1], strict=True)
        return any(isinstance(leaf.value, set) and constant_key(leaf.value) != old for leaf, old in pairs)

    def was_changed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether the argument contains other values than when it was flattened. What a cache contains may change."""
        before = self.tree if self.outside_caches is None else self.outside_caches
        if before.structure == "*":
            return False
        now = flatten(self.value(args, kwargs), self.name, open_outside_caches)
        pairs = zip(now.leaves, before.leaves, strict=False)
        return now.structure != before.structure or any(not same_leaf(a.value, b.value) for a, b in pairs)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call: its arguments, its tensors (each once), and its cache key."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arguments: tuple[Argument, ...]
    tensors: tuple[Leaf, ...]
    tensor_indices: tuple[int, ...]  # for each tensor leaf of the arguments, its index in `tensors`
    specs: tuple[TensorSpec, ...]
    bucketed: tuple[BucketedDim, ...]
    argument_key: tuple[tuple[str, Hashable], ...]
    torch_state: tuple[tuple[str, Hashable], ...]
    identity_objects: tuple[Leaf, ...]  # compared by id() in the key, so they must live as long as the key
    parts: tuple[Any, ...] = ()  # what the caches among the arguments consist of, those of `static=` last
    own_parts: int = 0  # how many of them are not of `static=`
    own_device: Any = None  # of the tensors that the function reaches; set for a call without tensors

    @cached_property
    def key(self) -> Hashable:
        """The cache key."""
        return self.argument_key, self.torch_state

    @property
    def device(self) -> Any:
        """The GPU of the call's tensors; without one, that of the function's own tensors if the call has no tensors, else the CPU."""
        return next(
            (x.value.device for x in self.tensors if x.value.device.type != "cpu"),
            self.own_device or torch.device("cpu"),
        )

    @property
    def lengths_by_group(self) -> dict[int, int]:
        """The length of each group of bucketed dimensions."""
        return {dim.group: dim.length for dim in self.bucketed}

    @property
    def identity_arguments(self) -> dict[str, Any]:
        """The arguments that are passed on as they are, by path: modules, functions, objects of `static=`, classes of caches."""
        classes = {type(part) for part in self.parts}
        return {leaf.path: leaf.value for leaf in self.identity_objects} | {kind.__name__: kind for kind in classes}

    @property
    def inputs(self) -> Sequence[Any]:
        """The tensors, and the parts of caches."""
        tensors = [leaf.value for leaf in self.tensors]
        return CallTensors.of(tensors, self.parts) if self.parts else tensors

    @property
    def caches(self) -> tuple[Leaf, ...]:
        """The caches among the arguments, with their paths."""
        return tuple(leaf for argument in self.arguments for leaf in argument.caches)

    def changed_arguments(self) -> list[str]:
        """Return the arguments whose structure, constants or tensors are no longer those of the call."""
        keys = dict(self.argument_key)
        return [
            argument.name
            for argument in self.arguments
            if argument.was_changed(self.args, self.kwargs) or argument.has_changed_set(keys[argument.name])
        ]

    @property
    def signature(self) -> CallSignature:
        """The input signature as text, by argument path."""
        arguments = {f"argument {path!r}": text for path, text in _argument_texts(self)}
        return CallSignature(parts={**arguments, **{name: _state_text(value) for name, value in self.torch_state}})

    def growing_cache(self) -> str:
        """Return the path of a value in a cache that was used before the call, and has another size or number now; empty if there is none."""
        for argument in self.arguments:
            for cache, structure in zip(argument.caches, argument.cache_structures, strict=True):
                before = {leaf.path: leaf.value for leaf in argument.tree.leaves if _is_inside(leaf, cache)}
                if not any(map(_is_filled, before.values())):
                    continue
                now = flatten_argument(cache.value, cache.path)
                changed = [leaf.path for leaf in now.leaves if not _same_kind(leaf.value, before.get(leaf.path))]
                if changed or now.structure != structure:
                    return (*changed, cache.path)[0]
        return ""

    def rebuild(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with these tensors in place of the call's."""
        indices = iter(self.tensor_indices)
        args: list[Any] = [None] * len(self.args)
        kwargs: dict[str, Any] = dict.fromkeys(self.kwargs)
        for argument in self.arguments:
            value = argument.rebuild(tensors[index] for index in indices)
            if argument.expression.startswith("args["):
                args[int(argument.expression[5:-1])] = value
            else:
                kwargs[argument.name] = value
        return args, kwargs

    def run(self, function: Callable[..., Any], tensors: Sequence[Any]) -> Any:
        """Call the function with these tensors in place of the call's. With caches, the result is a `CallResult`."""
        args, kwargs = self.rebuild(tensors)
        return self.run_with(function, args, kwargs)

    def run_reference(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function as `run_with` does."""
        return self.run_with(function, args, kwargs)

    def run_with(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function. With caches among the arguments, the result is a `CallResult`."""
        if not self.parts:
            return function(*args, **kwargs)
        return run_with_parts(_parts(self.arguments, args, kwargs), lambda: function(*args, **kwargs))


def _argument_texts(call: Call) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of every leaf of the arguments."""
    indices = iter(call.tensor_indices)
    for argument in call.arguments:
        for leaf in argument.tree.leaves:
            if argument.is_input(leaf):
                yield leaf.path, str(call.specs[next(indices)])
            else:
                yield leaf.path, _value_text(leaf.value)


def _value_text(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - of the user's class, or an integer with too many digits
        return type(value).__name__
    return text if len(text) <= _MAX_VALUE_LENGTH else type(value).__name__


def _state_text(value: Hashable) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def read_torch_state(modules: Sequence["weakref.ref[Any]"]) -> tuple[tuple[str, Hashable], ...]:
    """Return the state of torch and of the modules that a result depends on, besides the arguments."""
    training = tuple(module.training for reference in modules if (module := reference()) is not None)
    state: list[tuple[str, Hashable]] = [
        ("grad mode", torch.is_grad_enabled()),
        ("inference mode", torch.is_inference_mode_enabled()),
        ("training", training[0] if len(set(training)) == 1 else training),
        ("deterministic algorithms", torch.are_deterministic_algorithms_enabled()),
        ("float32 matmul precision", torch.get_float32_matmul_precision()),
        ("default dtype", torch.get_default_dtype()),
        ("default device", default_device()),
    ]
    for device_type in ("cpu", "cuda"):
        enabled = torch.is_autocast_enabled(device_type)
        state.append((f"autocast on {device_type}", torch.get_autocast_dtype(device_type) if enabled else "off"))
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state.append(("current device", torch.cuda.current_device()))
    return tuple(state)


def parse_call(
    parameters: Parameters,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    static: Collection[str] = (),
    buckets: Mapping[str, Sequence[Bucket]] | None = None,
    torch_state: tuple[tuple[str, Hashable], ...] = (),
) -> Call:
    """Flatten a call and make its cache key. Raises CannotCapture for an argument that cannot be part of a key."""
    arguments = tuple(
        Argument(name=name, expression=expression, tree=_tree(value, name, static), static=name in static)
        for name, expression, value in parameters.bind(args, kwargs)
    )
    arguments = tuple(_with_caches(argument, args, kwargs, arguments) for argument in arguments)
    index_by_id: dict[int, int] = {}
    tensors: list[Leaf] = []
    indices: list[int] = []
    key: list[tuple[str, Hashable]] = []
    identity_objects: list[Leaf] = []
    for argument in arguments:
        leaf_keys: list[Hashable] = []
        for leaf in argument.tree.leaves:
            if argument.is_input(leaf):
                _refuse_unsupported_tensor(leaf)
                index = index_by_id.setdefault(id(leaf.value), len(tensors))
                if index == len(tensors):
                    tensors.append(leaf)
                indices.append(index)
                leaf_keys.append(("tensor", index))
            else:
                leaf_keys.append(_leaf_key(leaf, argument, static, identity_objects))
        key.append((argument.name, (argument.tree.structure, tuple(leaf_keys))))
    passed = {argument.name for argument in arguments}
    key += [(name, ("*", (default,))) for name, default in parameters.defaults.items() if name not in passed]
    caches = [leaf.path for argument in arguments for leaf in argument.caches]
    _refuse_unknown_bucket_names(buckets or {}, [*(leaf.path for leaf in tensors), *caches])
    bucketed, specs = _apply_buckets(tensors, buckets or {})
    dims = tuple((dim.tensor, dim.dim, dim.group) for dim in bucketed)
    parts = tuple(part.value for part in _parts(arguments, args, kwargs))
    if len(set(map(id, parts))) != len(parts):
        raise CannotCapture(Reason.ARGUMENT, "two caches among the arguments are one, or share a layer")
    own_parts = len(_parts([argument for argument in arguments if not argument.static], args, kwargs))
    return Call(
        args=tuple(args),
        kwargs=dict(kwargs),
        arguments=arguments,
        tensors=tuple(tensors),
        tensor_indices=tuple(indices),
        specs=specs,
        bucketed=bucketed,
        argument_key=(*sorted(key, key=lambda part: part[0]), ("tensors", specs), ("bucketed", dims)),
        torch_state=torch_state,
        identity_objects=tuple(identity_objects),
        parts=parts,
        own_parts=own_parts,
    )


def _parts(arguments: Iterable[Argument], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Leaf]:
    """Return what the caches among the arguments consist of, those of `static=` last."""
    ordered = sorted((argument for argument in arguments if argument.has_caches), key=lambda argument: argument.static)
    values = ((argument.value(args, kwargs), argument.name) for argument in ordered)
    return [part for value, name in values for cache in caches_in(value, name) for part in parts_of(cache)]


def _is_inside(leaf: Leaf, cache: Leaf) -> bool:
    return leaf.path.startswith(f"{cache.path}.")


def _is_filled(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and bool(value.dim() and value.numel())


def _same_kind(now: Any, before: Any) -> bool:
    """Return whether a leaf belongs to the same cache key as before."""
    if isinstance(before, HostNumber):
        return isinstance(now, torch.Tensor) and not now.dim() and now.device.type == "cpu" and now == before.value
    if isinstance(now, torch.Tensor) and isinstance(before, torch.Tensor):
        return spec_of(now) == spec_of(before)
    return same_leaf(now, before)


def same_leaf(now: Any, before: Any) -> bool:
    """Return whether two leaves are one object, or equal constants."""
    return now is before or ((key := constant_key(now)) is not None and key == constant_key(before))


def _tree(value: Any, name: str, static: Collection[str]) -> Flattened:
    if name in static:
        return Flattened((Leaf(name, value),), "*", next)
    return flatten_argument(value, name)


def _with_caches(
    argument: Argument, args: Sequence[Any], kwargs: Mapping[str, Any], arguments: Sequence[Argument]
) -> Argument:
    """Return the argument with the caches in it."""
    value = argument.value(args, kwargs)
    caches = tuple(caches_in(value, argument.name))
    if not caches or argument.static:
        return replace(argument, has_caches=bool(caches))
    tree = argument.tree
    if any(other.tree.on_device for other in arguments):
        leaves = tuple(_host_number(leaf) for leaf in tree.leaves)
        tree = replace(tree, leaves=leaves)
    outside = flatten(value, argument.name, open_outside_caches)
    structures = tuple(
        argument.tree.structure if leaf.value is value else flatten_argument(leaf.value, leaf.path).structure
        for leaf in caches
    )
    return replace(
        argument, tree=tree, has_caches=True, caches=caches, cache_structures=structures, outside_caches=outside
    )


def _host_number(leaf: Leaf) -> Leaf:
    value = leaf.value
    if not isinstance(value, torch.Tensor) or value.dim() or value.device.type != "cpu":
        return leaf
    return Leaf(leaf.path, HostNumber(value.item(), value.dtype))


def _leaf_key(leaf: Leaf, argument: Argument, static: Collection[str], identity_objects: list[Leaf]) -> Hashable:
    if argument.name in static or compared_by_identity(leaf.value):
        identity_objects.append(leaf)
        fields = vars(leaf.value) if argument.name in static and hasattr(leaf.value, "__dict__") else {}
        constants = tuple((name, key) for name, value in fields.items() if (key := constant_key(value)) is not None)
        return "object", id(leaf.value), constants
    if isinstance(leaf.value, HostNumber):
        return HostNumber, leaf.value.dtype, constant_key(leaf.value.value)
    key = constant_key(leaf.value)
    if key is None:
        kind = type(leaf.value)
        raise CannotCapture(
            Reason.ARGUMENT,
            f"argument `{leaf.path}` is a {kind.__module__}.{kind.__qualname__}, which cannot be part of the cache key",
            fix=f"pass its tensors and numbers, make it a dataclass, register it as a pytree node, "
            f"or use static=({argument.name!r},) if it never changes",
        )
    return key


def _refuse_unsupported_tensor(leaf: Leaf) -> None:
    """Raise CannotCapture for a tensor that cannot be copied into a static buffer."""
    tensor, fix = leaf.value, ""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        description = f"a {type(tensor).__module__}.{type(tensor).__qualname__}"
    elif tensor.layout is not torch.strided:
        description = f"of layout {tensor.layout}"
    elif tensor.is_quantized:
        description = "quantized"
    elif tensor.is_conj() or tensor.is_neg():
        description = "a lazy conjugate or negative view"
        fix = f"pass {leaf.path}.resolve_conj().resolve_neg()"
    elif tensor.device.type == "meta":
        description = "on the meta device"
    else:
        return
    raise CannotCapture(
        Reason.ARGUMENT,
        f"argument `{leaf.path}` is {description}, which cannot be copied into a static buffer",
        fix=fix,
    )


def _refuse_unknown_bucket_names(buckets: Mapping[str, Sequence[Bucket]], paths: Sequence[str]) -> None:
    """Raise CannotCapture when no name of `buckets=` is a tensor of the call; an optional argument may be left out."""
    if buckets and not any(path in buckets for path in paths):
        bucket_names, tensor_names = (", ".join(f"`{name}`" for name in names) for names in (buckets, paths))
        problem = f"buckets= names {bucket_names}, but the call has no such tensor; it has {tensor_names}"
        raise CannotCapture(Reason.BUCKET, problem, fix="use the parameter names of the function as keys of buckets=")


def _apply_buckets(
    tensors: Sequence[Leaf], buckets: Mapping[str, Sequence[Bucket]]
) -> tuple[tuple[BucketedDim, ...], tuple[TensorSpec, ...]]:
    bucketed: list[BucketedDim] = []
    groups: dict[int, int] = {}
    specs = []
    for index, leaf in enumerate(tensors):
        spec = spec_of(leaf.value)
        shape = list(spec.shape)
        for bucket in buckets.get(leaf.path, ()):
            dim = bucket.dim if bucket.dim >= 0 else bucket.dim + len(shape)
            if not 0 <= dim < len(shape):
                problem = f"argument `{leaf.path}` has shape {shape}, and its bucket is for dim={bucket.dim}"
                raise CannotCapture(Reason.BUCKET, problem)
            length = shape[dim]
            size = bucket.fit(length)
            if size is None and length == 0:
                raise CannotCapture(Reason.BUCKET, f"argument `{leaf.path}` is empty in dimension {dim}")
            if size is None:
                largest = bucket.sizes[-1]
                raise CannotCapture(
                    Reason.BUCKET,
                    f"argument `{leaf.path}` has length {length}, which exceeds the largest bucket, {largest}",
                    fix='add a larger size, or use rs.Bucket(..., too_long="grow")',
                )
            group = groups.setdefault(length, len(groups))
            bucketed.append(BucketedDim(index, dim, length, size, bucket.pad, group))
            shape[dim] = size
        if leaf.path in buckets:
            spec = spec._replace(shape=tuple(shape), stride=_dense_stride(shape))
        specs.append(spec)
    return tuple(bucketed), tuple(specs)
