"""Reads facts about a torch operator for which torch has no public API: kernels, fake implementation, schema."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocsolid.errors import UnknownNameError
from rocsolid.torchapi.dispatch import HAS_KERNEL, schema_of
from rocsolid.torchapi.private_api import private_name

_HAS_FAKE = private_name(
    "torch._library.utils",
    "has_fake_kernel",
    "2.7..",
    without="rocsolid ops: fake kernels are found by dispatch key only",
)
_ALL_NAMES = private_name(
    "torch._C", "_dispatch_get_all_op_names", "2.4..", without="rocsolid ops: an unknown operator gets no suggestions"
)
_FILL = private_name(
    "torch._library.utils", "fill_defaults", "2.4..", without="rs.vendor_op: defaults are read from the schema"
)

_DEVICE_KEYS: Final = ("CPU", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
_AUTOGRAD_KEYS: Final = ("Autograd", "AutogradCUDA", "AutogradCPU", "CompositeImplicitAutograd")


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of an operator."""

    name: str
    type: str
    written: bool  # the operator changes this tensor in place
    aliased: bool  # a result may share memory with this tensor


@dataclass(frozen=True, kw_only=True)
class OperatorFacts:
    """What torch's dispatcher has registered for one operator."""

    name: str
    schema: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    returns_alias: bool
    has_fake: bool
    has_autograd: bool
    devices: tuple[str, ...]
    tags: tuple[str, ...]


def operator(name: str) -> Any:
    """Return the overload `namespace::name` or `namespace::name.overload`; raise UnknownNameError with near matches."""
    import torch

    namespace, colons, rest = name.partition("::")
    packet_name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace, None), packet_name, None) if colons else None
    operator_overload = getattr(packet, overload or "default", None) if packet is not None else None
    if packet is not None and operator_overload is None and not overload:
        names = packet.overloads()
        operator_overload = getattr(packet, names[0]) if names else None
    if operator_overload is None:
        all_names = _ALL_NAMES.find()
        known_names = {str(n).partition(".")[0] for n in (all_names() if all_names else ())}
        raise UnknownNameError(kind="operator", name=name, known=sorted(known_names))
    return operator_overload


def facts_of(overload: Any) -> OperatorFacts:
    """Collect what torch's dispatcher has registered for an overload."""
    schema = schema_of(overload)
    name = str(schema.name) + (f".{schema.overload_name}" if schema.overload_name else "")
    has_kernel = HAS_KERNEL.find() or _unknown
    return OperatorFacts(
        name=str(schema.name),
        schema=str(schema),
        arguments=tuple(
            Argument(
                name=a.name,
                type=str(a.type),
                written=bool(a.alias_info is not None and a.alias_info.is_write),
                aliased=a.alias_info is not None,
            )
            for a in schema.arguments
        ),
        returns=tuple(str(r.type) for r in schema.returns),
        returns_alias=any(r.alias_info is not None for r in schema.returns),
        has_fake=_has_fake(overload, name),
        has_autograd=any(has_kernel(name, key) for key in _AUTOGRAD_KEYS),
        devices=tuple(key for key in _DEVICE_KEYS if has_kernel(name, key)),
        tags=tuple(sorted(str(tag).rpartition(".")[2] for tag in overload.tags)),
    )


def _has_fake(overload: Any, name: str) -> bool:
    if (has_fake := _HAS_FAKE.find()) is not None:
        return bool(has_fake(overload))
    has_kernel = HAS_KERNEL.find() or _unknown
    return bool(has_kernel(name, "Meta") or has_kernel(name, "CompositeImplicitAutograd"))


def with_defaults(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return all arguments in order, including defaults that the call left out."""
    schema = schema_of(overload)
    if (fill := _FILL.find()) is not None:
        positional, keyword_only = fill(schema, tuple(args), dict(kwargs))
        return (*positional, *keyword_only.values())
    rest = schema.arguments[len(args) :]
    return (*args, *(kwargs.get(argument.name, argument.default_value) for argument in rest))


def _unknown(*_: Any) -> bool:
    return False
