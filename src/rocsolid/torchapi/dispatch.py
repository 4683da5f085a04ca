"""Torch's dispatch mode, and the properties of an operator that its schema declares."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from rocsolid.torchapi.private_api import private_name

DISPATCH_MODE = private_name(
    "torch.utils._python_dispatch",
    "TorchDispatchMode",
    "2.0..",
    without="rs.capture, rs.verify, rocsolid dryrun: CPU calls are not recorded, refusals name no operator, wrong results have no "
    "reference, kernels in custom operators are not listed",
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
    without="rs.vendor_op, rs.capture, rs.verify: a few operators, such as record_stream, are not supported",
)


@cache
def schema_of(operation: Any) -> Any:
    """Return the schema of an operator; raises UnsupportedTorchError where this torch does not tell."""
    return _SCHEMA.of(operation) or _schema_from_signature(operation) or _SCHEMA.get()


def _schema_from_signature(operation: Any) -> Any:
    """Return the schema by torch's public function, which knows the types of most operators only."""
    from torch.fx.operator_schemas import get_signature_for_torch_op

    with suppress(Exception):
        _, schemas = get_signature_for_torch_op(operation, return_schemas=True)
        return schemas[0] if schemas else None


class DispatchMode:
    """A block in which `dispatch` gets every operator, in this thread. May be entered again inside of itself."""

    def __init__(self) -> None:
        self._active: list[Any] = []

    def __enter__(self) -> Any:
        mode = _mode_class(DISPATCH_MODE.get())(self.dispatch)
        mode.__enter__()
        self._active.append(mode)
        return self

    def __exit__(self, *failure: object) -> None:
        self._active.pop().__exit__(*failure)

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run the operator."""
        raise NotImplementedError


@cache
def _mode_class(base: Any) -> Any:
    class Mode(base):  # type: ignore[misc]
        def __init__(self, on_operator: Callable[[Any, Any, Any], Any]) -> None:
            super().__init__()
            self._on_operator = on_operator

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self._on_operator(func, args, kwargs or {})

    return Mode


class OperatorMode(DispatchMode):
    """A dispatch mode whose `run` gets every operator that has a kernel of its own, in inference mode as well."""

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run the operators that the operator is made of."""
        with self:
            out = run_decomposed(func, args, kwargs)
        return self.run(func, args, kwargs) if out is NotImplemented else out

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
