"""Makes a torch operator of a function that Dynamo cannot look into, so that it stays in the graph."""

from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any, Final

from rocsolid.errors import VendorOpError
from rocsolid.ops.schema import schema_of
from rocsolid.ops.verify_op import Checks, check_op
from rocsolid.torchapi.operators import with_defaults

_CAST_DEVICES: Final = ("cuda", "cpu")
_ours: Final[dict[str, "VendorOp"]] = {}
Example = tuple[Any, ...] | Callable[[], tuple[Any, ...]]


class VendorOp:
    """A registered operator; call it like the function it was made of, inside `torch.compile` or outside."""

    def __init__(
        self, name: str, function: Callable[..., Any], reference: Callable[..., Any] | None, overload: Any
    ) -> None:
        self.name = name
        self.function = function
        self.reference = reference
        self.overload = overload
        self.differentiable = False
        self.checks: Checks | None = None
        self._call = overload
        update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator."""
        return self._call(*args, **kwargs)

    def check(self, *args: Any, rtol: float | None = None, atol: float | None = None) -> Checks:
        """Hold the operator against its declaration and its reference with these arguments; raises VendorOpError."""
        self.checks = check_op(self, args, rtol=rtol, atol=atol)
        return self.checks

    def __repr__(self) -> str:
        state = "checked" if self.checks else "not checked"
        return f"<vendor operator {self.overload._schema}, {state}>"  # noqa: SLF001 - torch has no other name for it


def vendor_op(  # noqa: PLR0913 - each says one thing about the operator, by name
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
    """Register a third-party function as a torch operator: no graph break, forward and backward, inside a capture.

    With an `example` it is checked at once, on random inputs of the same shapes: what it writes to, what it returns, its fake, its
    gradients, and its answer against the reference. Works as a decorator too.

    Args:
        name: `namespace::name`, as it will be found under `torch.ops`.
        fn: the function: a vendor's kernel, its Python wrapper, a Triton launcher.
        fake: what tells the shape of the result, computing nothing; without it the reference is used.
        reference: the same in plain torch.
        mutates: the arguments it writes to.
        backward: `backward(grads, inputs, output)`, in torch operators, returns a gradient or None for each input; without it the
            reference is differentiated.
        schema: `(Tensor x, float eps) -> Tensor`, where it can be seen neither from annotations nor from the example.
        example: arguments to check it with, or a function that makes them.
        autocast: the dtype to which floating inputs are cast under `torch.autocast`.
        graph_safe: False keeps Inductor from capturing it in a device graph.

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
    _check_name(name)
    given = _example(example)
    wanted = schema or schema_of(name, fn, mutates=mutates, others=(reference, fake), example=given)
    if fake is None and reference is None:
        msg = f"{name}: give a fake (or a reference, which can stand in for it): without one the operator cannot be traced"
        raise VendorOpError(msg)
    op = _register(name, fn, wanted, mutates, reference, graph_safe=graph_safe)
    _register_fake(op, fake or reference)
    _register_backward(op, backward)
    if autocast is not None:
        import torch

        for device in _CAST_DEVICES:
            torch.library.register_autocast(name, device, autocast)
    _ours[name] = op
    if given is not None:
        op.check(*given)
    return op


def _check_name(name: str) -> None:
    import torch

    space, colons, rest = name.partition("::")
    if not colons or not space.isidentifier() or not rest.isidentifier():
        msg = f"an operator is called namespace::name, and {name!r} is not"
        raise VendorOpError(msg)
    if name not in _ours and hasattr(getattr(torch.ops, space), rest):
        msg = f"{name} is an operator already, and not ours; choose a namespace of your own (rs.audit_op tells what it is)"
        raise VendorOpError(msg)


def _example(example: Example | None) -> tuple[Any, ...] | None:
    made = example() if callable(example) else example
    if made is not None and not isinstance(made, tuple):
        msg = f"the example is {type(made).__name__}; it must be a tuple of arguments, or a function that makes one"
        raise VendorOpError(msg)
    return made


def _register(
    name: str,
    fn: Callable[..., Any],
    schema: str,
    mutates: Sequence[str],
    reference: Callable[..., Any] | None,
    *,
    graph_safe: bool,
) -> VendorOp:
    import torch

    tags = () if graph_safe else (torch.Tag.cudagraph_unsafe,)
    overloads: list[Any] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        return fn(*with_defaults(overloads[0], args, kwargs))

    try:
        torch.library.custom_op(name, run, mutates_args=tuple(mutates), schema=schema, tags=tags)
    except (RuntimeError, ValueError) as refused:
        msg = f"{name}: torch refuses the schema {schema!r}: {str(refused).strip().partition(chr(10))[0]}"
        raise VendorOpError(msg) from refused
    space, _, rest = name.partition("::")
    overloads.append(getattr(torch.ops, space).__getattr__(rest).default)
    return VendorOp(name, fn, reference, overloads[0])


def _register_fake(op: VendorOp, fake: Callable[..., Any] | None) -> None:
    import torch

    if fake is None:
        return

    def shaped(*args: Any, **kwargs: Any) -> Any:
        return fake(*with_defaults(op.overload, args, kwargs))

    torch.library.register_fake(op.name, shaped)


def _register_backward(op: VendorOp, backward: Callable[..., Any] | None) -> None:
    """Gradients as given, or those of the reference; an operator that writes to its inputs has none unless they are given."""
    writes = op.overload._schema.is_mutable  # noqa: SLF001 - torch has no other name for it
    if backward is not None:
        register_gradients(op.name, op.overload, op.reference, backward)
    elif op.reference is not None and not writes:
        register_gradients(op.name, op.overload, op.reference)
    op.differentiable = backward is not None or (op.reference is not None and not writes)


def register_gradients(
    name: str,
    overload: Any,
    reference: Callable[..., Any] | None,
    backward: Callable[..., Any] | None = None,
) -> None:
    """Let an operator be differentiated: by `backward(grads, inputs, output)`, or as its reference is."""
    import torch

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any, keyword_only_inputs: Any = None) -> None:
        del keyword_only_inputs
        filled = with_defaults(overload, inputs, {})
        outputs = output if isinstance(output, tuple) else (output,)
        # The reference starts from the inputs alone; what is not needed is not kept.
        kept = (*filled, *outputs) if backward is not None else filled
        ctx.save_for_backward(*(v for v in kept if isinstance(v, torch.Tensor)))
        ctx.plain = [None if isinstance(v, torch.Tensor) else (v,) for v in kept]
        ctx.count = len(filled)

    def gradients(ctx: Any, *grads: Any) -> Any:
        tensors = iter(ctx.saved_tensors)
        values = [next(tensors) if plain is None else plain[0] for plain in ctx.plain]
        inputs, outputs = tuple(values[: ctx.count]), tuple(values[ctx.count :])
        given = grads[0] if len(grads) == 1 else grads
        if backward is not None:
            return backward(given, inputs, outputs[0] if len(outputs) == 1 else outputs)
        return _differentiated(reference, inputs, given, tuple(ctx.needs_input_grad))

    torch.library.register_autograd(name, gradients, setup_context=keep)


def _differentiated(
    reference: Callable[..., Any] | None, inputs: tuple[Any, ...], grads: Any, needed: tuple[bool, ...]
) -> tuple[Any, ...]:
    """Gradients of the reference; it is computed once more, so that nothing of it has to be kept."""
    import torch

    if reference is None:
        return tuple(None for _ in inputs)
    places = [n for n, wanted in enumerate(needed) if wanted and isinstance(inputs[n], torch.Tensor)]

    def of(*tensors: Any) -> Any:
        filled = list(inputs)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return reference(*filled)

    _, pull = torch.func.vjp(of, *(inputs[n] for n in places))
    found = dict(zip(places, pull(grads), strict=True))
    return tuple(found.get(n) for n in range(len(inputs)))
