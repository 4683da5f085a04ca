"""Torch's dispatch mode, and the properties of an operator that its schema declares."""

from functools import cache
from typing import Any

from rocsolid.torchapi.private_api import private_name

_MODE = private_name(
    "torch.utils._python_dispatch",
    "TorchDispatchMode",
    "2.0..",
    without="rs.capture: CPU calls are not recorded, and refusals name no operator",
)
HAS_KERNEL = private_name(
    "torch._C",
    "_dispatch_has_kernel_for_dispatch_key",
    "2.0..",
    without="rs.capture, rocsolid ops: calls in inference mode are not recorded, kernels of operators are not listed",
)
_COMPOSITE = private_name(
    "torch._C",
    "DispatchKey.CompositeImplicitAutograd",
    "2.0..",
    without="rs.capture: calls in inference mode are not recorded",
)
_DISPATCH = private_name(
    "torch._ops",
    "OpOverload._op_dk",
    "2.0..",
    of_instances=True,
    without="rs.capture: calls in inference mode are not recorded",
)
_SCHEMA = private_name(
    "torch._ops",
    "OpOverload._schema",
    "2.0..",
    of_instances=True,
    without="rs.vendor_op, rs.capture: which arguments an operator changes is unknown",
)


class _NoDispatchMode:
    def __enter__(self) -> None:
        _MODE.get()  # raises, with the name


# This module is only imported where torch is in use.
DispatchMode: Any = _MODE.find() or _NoDispatchMode


@cache
def schema_of(operation: Any) -> Any:
    """Return the schema of an operator; raises UnsupportedTorchError where this torch has none."""
    return _SCHEMA.of(operation) or _SCHEMA.get()


class OperatorMode(DispatchMode):  # type: ignore[misc]
    """A dispatch mode whose `run` gets every operator that has a kernel of its own, in inference mode as well."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with self:
            out = run_decomposed(func, args, kwargs or {})
        return self.run(func, args, kwargs or {}) if out is NotImplemented else out

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run the operator."""
        raise NotImplementedError


def run_decomposed(operation: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator as the operators that it is made of; NotImplemented for an operator with a kernel of its own.

    Outside inference mode autograd does this before a dispatch mode is called. In inference mode autograd is skipped, so that the mode
    gets `contiguous`, `reshape`, `to`, `item` or `matmul`, of which the schema does not tell what they will do. Call this with the
    mode active: the mode then gets the same operators as outside inference mode.
    """
    if not _is_composite(operation):
        return NotImplemented
    # Not `operation.decompose`, which prefers a decomposition written for the compiler, where there is one, to what eager runs.
    return _DISPATCH.of(operation)(_COMPOSITE.get(), *args, **kwargs)


@cache
def _is_composite(operation: Any) -> bool:
    has_kernel, name = HAS_KERNEL.find(), operation.name()
    if has_kernel is None or _COMPOSITE.find() is None or _DISPATCH.of(operation) is None:
        return False
    return bool(has_kernel(name, _COMPOSITE.get())) and not any(has_kernel(name, key) for key in ("CPU", "CUDA"))


@cache
def changes_only_metadata(operation: Any) -> bool:
    """Return whether an operator only changes the shape, strides or storage of an argument, such as `transpose_`."""
    import torch

    return torch.Tag.inplace_view in operation.tags


@cache
def returns_view(operation: Any) -> bool:
    """Return whether an operator returns a view of an argument, without writing to it."""
    returned = [value.alias_info for value in schema_of(operation).returns]
    return any(alias is not None and not alias.is_write for alias in returned)


@cache
def writes_in_place(operation: Any) -> bool:
    """Return whether an operator writes to an argument."""
    return any(a.alias_info is not None and a.alias_info.is_write for a in schema_of(operation).arguments)


@cache
def only_allocates(operation: Any) -> bool:
    """Return whether an operator only allocates memory, so that a replay can skip it."""
    name = operation.name().partition(".")[0]
    return name in (
        "aten::empty",
        "aten::empty_strided",
        "aten::empty_like",
        "aten::new_empty",
        "aten::new_empty_strided",
    )


def written_arguments(operation: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the values of the arguments that an operator writes to."""
    found: list[Any] = []
    for index, argument in enumerate(schema_of(operation).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            found += value if isinstance(value, (list, tuple)) else [value]
    return found
