"""Holds an operator against what it claims: what it writes to, what it returns, its fake, its gradients, its answer."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocsolid.errors import VendorOpError

if TYPE_CHECKING:
    from rocsolid.ops.vendor_op import VendorOp

_OPCHECKS: Final = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_dynamic")
_MEANING: Final = {
    "test_schema": "it does not do what its schema says",
    "test_faketensor": "its fake gives another shape, stride or dtype than the function",
    "test_autograd_registration": "its gradients are registered in a way that does not compile",
    "test_aot_dispatch_dynamic": "compiled, with sizes that change, it gives another answer or other gradients",
}


@dataclass(frozen=True, kw_only=True)
class Checks:
    """What was held against what, and how far off it was."""

    passed: tuple[str, ...]
    error: float | None = None  # largest difference to the reference, over the largest value of it
    gradient_error: float | None = None


def check_op(op: "VendorOp", args: tuple[Any, ...], *, rtol: float | None = None, atol: float | None = None) -> Checks:
    """Run every check; raises VendorOpError at the first that fails."""
    import torch

    passed = []
    inputs = _random_like(args)
    _check_writes(op, inputs)
    passed.append("writes only where it says")
    _check_alias(op, inputs)
    passed.append("returns memory of its own")
    kept = [n for n in _OPCHECKS if op.differentiable or n != "test_autograd_registration"]
    for name in kept:
        _opcheck(op, _leaves(inputs, grad=op.differentiable), name)
        passed.append(name)
    error = gradient_error = None
    if op.reference is not None:
        with torch.no_grad():
            error = _compare(op, inputs, rtol, atol)
        passed.append("agrees with its reference")
        if op.differentiable:
            gradient_error = _compare_gradients(op, inputs, rtol, atol)
            passed.append("gradients agree with the reference's")
    return Checks(passed=tuple(passed), error=error, gradient_error=gradient_error)


def _random_like(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Random values in the place of the example's; integers and masks are kept, since they may be indices."""
    import torch

    def fresh(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            return made.copy_(torch.randn(value.shape, dtype=torch.float32, device=value.device))
        if isinstance(value, torch.Tensor):
            return value.clone()
        if isinstance(value, (list, tuple)):
            return type(value)(fresh(v) for v in value)
        return value

    return tuple(fresh(value) for value in args)


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    import torch

    return tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)


def _leaves(args: tuple[Any, ...], *, grad: bool) -> tuple[Any, ...]:
    import torch

    return tuple(
        a.detach().clone().requires_grad_(grad and a.is_floating_point()) if isinstance(a, torch.Tensor) else a
        for a in args
    )


def _names(op: "VendorOp") -> list[Any]:
    return list(op.overload._schema.arguments)  # noqa: SLF001 - torch has no other name for it


def _check_writes(op: "VendorOp", args: tuple[Any, ...]) -> None:
    """Run the bare function and see which of its inputs have changed."""
    import torch

    given = _copies(args)
    with torch.no_grad():
        op.function(*given)
    for argument, before, after in zip(_names(op), args, given, strict=False):
        if not isinstance(before, torch.Tensor):
            continue
        declared = argument.alias_info is not None and argument.alias_info.is_write
        changed = not torch.equal(torch.nan_to_num(before.float()), torch.nan_to_num(after.float()))
        if changed and not declared:
            msg = (
                f"{op.name} writes to its argument {argument.name!r}, and mutates={_mutated(op)} does not say so: compiled code "
                f"would read the old value; declare mutates=({argument.name!r},), or clone it before"
            )
            raise VendorOpError(msg)


def _mutated(op: "VendorOp") -> tuple[str, ...]:
    return tuple(a.name for a in _names(op) if a.alias_info is not None and a.alias_info.is_write)


def _check_alias(op: "VendorOp", args: tuple[Any, ...]) -> None:
    """An operator may not return an input, nor a view of one: the compiler would let both live apart."""
    import torch

    given = _copies(args)
    with torch.no_grad():
        made = op.function(*given)
    results = made if isinstance(made, (tuple, list)) else (made,)
    for number, result in enumerate(results):
        if not isinstance(result, torch.Tensor):
            continue
        for argument, value in zip(_names(op), given, strict=False):
            same = isinstance(value, torch.Tensor) and _storage(value) == _storage(result) != 0
            if same:
                what = "its argument itself" if result is value else "a view of its argument"
                msg = (
                    f"{op.name} returns {what} {argument.name!r} (result {number}): an operator must return memory of its own; "
                    "return a clone, or, if it writes to the argument, return nothing and declare mutates"
                )
                raise VendorOpError(msg)


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _opcheck(op: "VendorOp", args: tuple[Any, ...], name: str) -> None:
    import torch

    try:
        torch.library.opcheck(op.overload, args, test_utils=name)
    except Exception as failed:
        cause = failed.__cause__ or failed
        said = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
        msg = f"{op.name}: {_MEANING[name]} ({name}: {said})"
        raise VendorOpError(msg) from failed


def _compare(op: "VendorOp", args: tuple[Any, ...], rtol: float | None, atol: float | None) -> float:
    """Against the reference in float32: the largest difference, relative to the largest value."""
    made, wanted = op(*_copies(args)), _reference(op, args)
    return _agree(f"{op.name} differs from its reference", _flat(made), _flat(wanted), rtol, atol)


def _reference(op: "VendorOp", args: tuple[Any, ...]) -> Any:
    import torch

    if op.reference is None:
        return None
    widened = tuple(a.float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in _copies(args))
    return op.reference(*widened)


def _compare_gradients(op: "VendorOp", args: tuple[Any, ...], rtol: float | None, atol: float | None) -> float | None:
    import torch

    mine = _leaves(args, grad=True)
    theirs = _leaves(
        tuple(a.float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args), grad=True
    )
    outputs, wanted = _flat(op(*mine)), _flat(op.reference(*theirs) if op.reference else None)
    pairs = [(o, w) for o, w in zip(outputs, wanted, strict=False) if o.requires_grad]
    if not pairs:
        return None
    weights = [torch.randn_like(w) for _, w in pairs]
    torch.autograd.backward([o for o, _ in pairs], [g.to(o.dtype) for g, (o, _) in zip(weights, pairs, strict=True)])
    torch.autograd.backward([w for _, w in pairs], weights)
    grads = [(m.grad, t.grad) for m, t in zip(mine, theirs, strict=True) if isinstance(t, torch.Tensor)]
    found = [(m, t) for m, t in grads if m is not None and t is not None]
    said = f"the gradients of {op.name} differ from its reference's"
    return _agree(said, [m for m, _ in found], [t for _, t in found], rtol, atol)


def _agree(said: str, made: list[Any], wanted: list[Any], rtol: float | None, atol: float | None) -> float:
    from rocsolid.numerics import reference_tolerance, worst_excess

    if len(made) != len(wanted):
        msg = f"{said}: it gives {len(made)} tensors, and the reference {len(wanted)}"
        raise VendorOpError(msg)
    worst = 0.0
    for number, (mine, theirs) in enumerate(zip(made, wanted, strict=True)):
        if mine.shape != theirs.shape:
            msg = f"{said}: result {number} is {list(mine.shape)}, and the reference's {list(theirs.shape)}"
            raise VendorOpError(msg)
        relative, absolute = reference_tolerance(mine.dtype, rtol, atol)
        off = (mine.double() - theirs.double()).abs()
        largest = float(theirs.double().abs().max()) if theirs.numel() else 0.0
        worst = max(worst, float(off.max()) / max(largest, 1e-12) if off.numel() else 0.0)
        if worst_excess(mine, theirs, relative, absolute) > 1:
            allowed = absolute + relative * largest
            msg = f"{said}: result {number} is off by {float(off.max()):.3g} where {allowed:.3g} would do"
            raise VendorOpError(msg)
    return worst


def _flat(value: object) -> list[Any]:
    import torch

    items = value if isinstance(value, (tuple, list)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]
