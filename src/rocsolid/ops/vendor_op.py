"""Registers a function that Dynamo cannot trace as a torch operator, so that it does not break the graph."""

from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any, Final

from rocsolid.errors import VendorOpError
from rocsolid.new_torch import check_new_torch
from rocsolid.ops.schema import infer_schema
from rocsolid.ops.verify_op import OpChecks, verify_op
from rocsolid.torchapi.dispatch import schema_of
from rocsolid.torchapi.operators import with_defaults

_AUTOCAST_DEVICES: Final = ("cuda", "cpu")
_registered: Final[set[str]] = set()
Example = tuple[Any, ...] | Callable[[], tuple[Any, ...]]


class VendorOp:
    """A registered operator. Call it like the original function, inside `torch.compile` or outside."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        reference: Callable[..., Any] | None,
        overload: Any,
        *,
        differentiable: bool,
    ) -> None:
        self.name = name
        self.function = function
        self.reference = reference
        self.overload = overload
        self.differentiable = differentiable
        self.checks: OpChecks | None = None
        self._call = overload
        update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator."""
        return self._call(*args, **kwargs)

    def check(self, *args: Any, rtol: float | None = None, atol: float | None = None) -> OpChecks:
        """Compare the operator with its declaration and its reference for these arguments; raises VendorOpError."""
        self.checks = verify_op(self, args, rtol=rtol, atol=atol)
        return self.checks

    def __repr__(self) -> str:
        state = "checked" if self.checks else "not checked"
        return f"<vendor operator {schema_of(self.overload)}, {state}>"


def vendor_op(  # noqa: PLR0913 - all but two are keywords
    name: str,
    fn: Callable[..., Any] | None = None,
    *,
    fake: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    mutates: Sequence[str] = (),
    backward: Callable[..., Any] | None = None,
    schema: str | None = None,
    example: Example | None = None,
    autocast: Any = None,
    graph_safe: bool = True,
) -> Any:
    """Register a third-party function as a torch operator: it works in compiled graphs, in the backward pass and in captures.

    With an `example`, it is checked immediately on random inputs of the same shapes: the arguments it mutates, its results, its fake
    implementation, its gradients, and that its results agree with the reference. Also works as a decorator.

    Args:
        name: `namespace::name`; the operator becomes `torch.ops.namespace.name`.
        fn: the function: a vendor's kernel, its Python wrapper, a Triton launcher.
        fake: returns empty tensors with the shape and dtype of the result; default: the reference.
        reference: the same computation in plain torch.
        mutates: names of the arguments that the function writes to.
        backward: `backward(grads, inputs, output)`, written with torch operators, returns a gradient or None per input; default:
            the gradients of the reference.
        schema: such as `(Tensor x, float eps) -> Tensor`; needed only if annotations and example do not give it.
        example: arguments to check the operator with, or a function that returns them.
        autocast: dtype to which floating-point inputs are cast under `torch.autocast`.
        graph_safe: False keeps Inductor from capturing the operator in a CUDA graph.

    Example:
        >>> import rocsolid as rs, torch
        >>> def twice(x: torch.Tensor) -> torch.Tensor:
        ...     return x * 2
        >>> op = rs.vendor_op("doc::twice", twice, reference=lambda x: x + x, example=(torch.ones(3),))
        >>> torch.compile(op, fullgraph=True, backend="eager")(torch.ones(2)).tolist()
        [2.0, 2.0]

    """
    if fn is None:
        return partial(
            vendor_op,
            name,
            fake=fake,
            reference=reference,
            mutates=mutates,
            backward=backward,
            schema=schema,
            example=example,
            autocast=autocast,
            graph_safe=graph_safe,
        )
    check_new_torch()
    _check_name(name)
    example_args = _example(example)
    used_schema = schema or infer_schema(name, fn, mutates=mutates, others=(reference, fake), example=example_args)
    if fake is None and reference is None:
        msg = f"{name}: pass fake=... or reference=...; without one, torch.compile cannot know the shape of the result"
        raise VendorOpError(msg)
    overload = _register(name, fn, used_schema, mutates, graph_safe=graph_safe)
    _register_fake(name, overload, fake or reference)
    differentiable = _register_backward(name, overload, reference, backward)
    if autocast is not None:
        import torch

        for device in _AUTOCAST_DEVICES:
            torch.library.register_autocast(name, device, autocast)
    _registered.add(name)
    if reference is not None:
        from rocsolid.reference import register_operator_reference

        register_operator_reference(overload, reference)
    op = VendorOp(name, fn, reference, overload, differentiable=differentiable)
    if example_args is not None:
        op.check(*example_args)
    return op


def _check_name(name: str) -> None:
    import torch

    namespace, colons, op_name = name.partition("::")
    if not colons or not namespace.isidentifier() or not op_name.isidentifier():
        msg = f"write an operator name as namespace::name, not {name!r}"
        raise VendorOpError(msg)
    if name not in _registered and hasattr(getattr(torch.ops, namespace), op_name):
        msg = f"the operator {name} already exists; use your own namespace, such as mine::{op_name}"
        raise VendorOpError(msg)


def _example(example: Example | None) -> tuple[Any, ...] | None:
    args = example() if callable(example) else example
    if args is not None and not isinstance(args, tuple):
        msg = f"example must be a tuple of arguments, or a function that returns one, not {type(args).__name__}"
        raise VendorOpError(msg)
    return args


def _register(
    name: str,
    fn: Callable[..., Any],
    schema: str,
    mutates: Sequence[str],
    *,
    graph_safe: bool,
) -> Any:
    """Register the operator and return its default overload."""
    import torch

    tags = () if graph_safe else (torch.Tag.cudagraph_unsafe,)
    overloads: list[Any] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        return fn(*with_defaults(overloads[0], args, kwargs))

    try:
        torch.library.custom_op(name, run, mutates_args=tuple(mutates), schema=schema, tags=tags)
    except (RuntimeError, ValueError) as error:
        msg = f"{name}: torch rejects the schema {schema!r}: {str(error).strip().partition(chr(10))[0]}"
        raise VendorOpError(msg) from error
    namespace, _, op_name = name.partition("::")
    overloads.append(getattr(torch.ops, namespace).__getattr__(op_name).default)
    return overloads[0]


def _register_fake(name: str, overload: Any, fake: Callable[..., Any] | None) -> None:
    import torch

    if fake is None:
        return

    def fake_with_defaults(*args: Any, **kwargs: Any) -> Any:
        return fake(*with_defaults(overload, args, kwargs))

    torch.library.register_fake(name, fake_with_defaults)


def _register_backward(
    name: str, overload: Any, reference: Callable[..., Any] | None, backward: Callable[..., Any] | None
) -> bool:
    """Register `backward` or the gradients of the reference; returns whether the operator is differentiable.

    An operator that mutates its inputs is differentiable only with `backward`.
    """
    mutates = schema_of(overload).is_mutable
    if backward is None and (reference is None or mutates):
        return False
    register_gradients(name, overload, reference, backward)
    return True


def register_gradients(
    name: str,
    overload: Any,
    reference: Callable[..., Any] | None,
    backward: Callable[..., Any] | None = None,
) -> None:
    """Make an operator differentiable, by `backward(grads, inputs, output)` or by differentiating its reference."""
    import torch

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any, keyword_only_inputs: Any = None) -> None:
        del keyword_only_inputs
        filled = with_defaults(overload, inputs, {})
        outputs = output if isinstance(output, tuple) else (output,)
        # The reference needs the inputs only, so the outputs are not saved for it.
        saved = (*filled, *outputs) if backward is not None else filled
        ctx.save_for_backward(*(v for v in saved if isinstance(v, torch.Tensor)))
        ctx.non_tensors = [None if isinstance(v, torch.Tensor) else (v,) for v in saved]
        ctx.input_count = len(filled)

    def gradients(ctx: Any, *grads: Any) -> Any:
        tensors = iter(ctx.saved_tensors)
        values = [next(tensors) if boxed is None else boxed[0] for boxed in ctx.non_tensors]
        inputs, outputs = tuple(values[: ctx.input_count]), tuple(values[ctx.input_count :])
        given = grads[0] if len(grads) == 1 else grads
        if backward is not None:
            return backward(given, inputs, outputs[0] if len(outputs) == 1 else outputs)
        return _reference_gradients(reference, inputs, given, tuple(ctx.needs_input_grad))

    torch.library.register_autograd(name, gradients, setup_context=save)


def _reference_gradients(
    reference: Callable[..., Any] | None, inputs: tuple[Any, ...], grads: Any, needed: tuple[bool, ...]
) -> tuple[Any, ...]:
    """Return the gradients of the reference. It is computed again, so that no intermediate results have to be saved."""
    import torch

    if reference is None:
        return tuple(None for _ in inputs)
    positions = [n for n, wanted in enumerate(needed) if wanted and isinstance(inputs[n], torch.Tensor)]

    def reference_of(*tensors: Any) -> Any:
        filled = list(inputs)
        for position, tensor in zip(positions, tensors, strict=True):
            filled[position] = tensor
        return reference(*filled)

    _, backward_function = torch.func.vjp(reference_of, *(inputs[n] for n in positions))
    found = dict(zip(positions, backward_function(grads), strict=True))
    return tuple(found.get(n) for n in range(len(inputs)))
