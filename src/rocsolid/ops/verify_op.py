"""Checks an operator against its declaration: mutated arguments, results, fake implementation, gradients, reference."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rocsolid.errors import VendorOpError
from rocsolid.torchapi.dispatch import schema_of

_OPCHECKS: Final = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_dynamic")
_OPCHECK_FAILURES: Final = {
    "test_schema": "its schema does not match what it does",
    "test_faketensor": "its fake implementation returns another shape, stride or dtype than the function",
    "test_autograd_registration": "its gradients are registered in a way that torch.compile does not support",
    "test_aot_dispatch_dynamic": "compiled with dynamic sizes, it returns wrong results or wrong gradients",
}


class Op(Protocol):
    """The operator to check, with the functions it was registered from."""

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any] | None
    overload: Any
    differentiable: bool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator."""
        ...


@dataclass(frozen=True, kw_only=True)
class OpChecks:
    """The checks that passed, and the largest errors."""

    passed: tuple[str, ...]
    error: float | None = None  # largest difference from the reference, divided by its largest value
    gradient_error: float | None = None


def verify_op(op: Op, args: tuple[Any, ...], *, rtol: float | None = None, atol: float | None = None) -> OpChecks:
    """Run every check; raises VendorOpError for the first that fails."""
    import torch

    passed = []
    inputs = _random_like(args)
    _check_mutations(op, inputs)
    passed.append("mutates only what it declares")
    _check_alias(op, inputs)
    passed.append("returns new memory")
    _check_strides(op, inputs)
    names = [n for n in _OPCHECKS if op.differentiable or n != "test_autograd_registration"]
    for name in names:
        _opcheck(op, _leaves(inputs, grad=op.differentiable), name)
        passed.append(name)
    error = gradient_error = None
    if op.reference is not None:
        with torch.no_grad():
            error = _compare(op, inputs, rtol, atol)
        passed.append("agrees with its reference")
        if op.differentiable:
            gradient_error = _compare_gradients(op, inputs, rtol, atol)
            passed.append("gradients agree with its reference")
    return OpChecks(passed=tuple(passed), error=error, gradient_error=gradient_error)


def _random_like(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace floating-point values by random ones. Integers and masks stay the same, because they may be indices."""
    import torch

    def randomised(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            random = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            return random.copy_(torch.randn(value.shape, dtype=torch.float32, device=value.device))
        if isinstance(value, torch.Tensor):
            return value.clone()
        if isinstance(value, (list, tuple)):
            return type(value)(randomised(v) for v in value)
        return value

    return tuple(randomised(value) for value in args)


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    import torch

    return tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)


def _leaves(args: tuple[Any, ...], *, grad: bool) -> tuple[Any, ...]:
    import torch

    return tuple(
        a.detach().clone().requires_grad_(grad and a.is_floating_point()) if isinstance(a, torch.Tensor) else a
        for a in args
    )


def _arguments(op: Op) -> list[Any]:
    return list(schema_of(op.overload).arguments)


def _check_mutations(op: Op, args: tuple[Any, ...]) -> None:
    """Run the function and check that it changed only the declared arguments."""
    import torch

    copies = _copies(args)
    with torch.no_grad():
        op.function(*copies)
    for argument, before, after in zip(_arguments(op), args, copies, strict=False):
        if not isinstance(before, torch.Tensor):
            continue
        declared = argument.alias_info is not None and argument.alias_info.is_write
        changed = not torch.equal(torch.nan_to_num(before.float()), torch.nan_to_num(after.float()))
        if changed and not declared:
            msg = (
                f"{op.name} writes to its argument {argument.name!r}, which mutates={_mutated(op)} does not declare. "
                f"Compiled code would read the old value. Fix: mutates={(*_mutated(op), argument.name)!r}, or clone it first"
            )
            raise VendorOpError(msg)


def _mutated(op: Op) -> tuple[str, ...]:
    return tuple(a.name for a in _arguments(op) if a.alias_info is not None and a.alias_info.is_write)


def _check_alias(op: Op, args: tuple[Any, ...]) -> None:
    """Check that no result is an input or a view of one, because the compiler treats them as separate memory."""
    import torch

    copies = _copies(args)
    with torch.no_grad():
        result = op.function(*copies)
    results = result if isinstance(result, (tuple, list)) else (result,)
    for index, result in enumerate(results):
        if not isinstance(result, torch.Tensor):
            continue
        for argument, value in zip(_arguments(op), copies, strict=False):
            shares_memory = isinstance(value, torch.Tensor) and _storage(value) == _storage(result) != 0
            if shares_memory:
                returned = "its argument" if result is value else "a view of its argument"
                msg = (
                    f"{op.name} returns {returned} {argument.name!r} (result {index}); an operator must return new memory. "
                    f"Fix: return a clone, or return None and declare mutates=({argument.name!r},)"
                )
                raise VendorOpError(msg)


def _check_strides(op: Op, args: tuple[Any, ...]) -> None:
    """Check that the fake implementation returns the strides of the function: opcheck compares them since torch 2.12 only."""
    import torch

    with torch.no_grad():
        results = _flat(op.function(*_copies(args)))
        try:
            fakes = _flat(op.overload(*(_on_meta(value) for value in args)))
        except Exception:  # noqa: BLE001 - opcheck, which comes next, says what is wrong with the fake implementation
            return
    for index, (result, fake) in enumerate(zip(results, fakes, strict=False)):
        strides = [_strides(tensor) for tensor in (result, fake)]
        if result.shape == fake.shape and strides[0] != strides[1]:
            msg = (
                f"{op.name}: {_OPCHECK_FAILURES['test_faketensor']} (strides of result {index}: {tuple(result.stride())}, "
                f"of the fake implementation: {tuple(fake.stride())})"
            )
            raise VendorOpError(msg)


def _on_meta(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return type(value)(_on_meta(v) for v in value) if isinstance(value, (list, tuple)) else value


def _strides(tensor: Any) -> list[int]:
    """The strides that matter: those of dimensions with more than one element."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _opcheck(op: Op, args: tuple[Any, ...], name: str) -> None:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch 2.15 reads `.grad` of results, which torch itself warns about
            torch.library.opcheck(op.overload, args, test_utils=name)
    except Exception as opcheck_error:
        cause = opcheck_error.__cause__ or opcheck_error
        error = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
        msg = f"{op.name}: {_OPCHECK_FAILURES[name]} (torch.library.opcheck {name}: {error})"
        raise VendorOpError(msg) from opcheck_error


def _compare(op: Op, args: tuple[Any, ...], rtol: float | None, atol: float | None) -> float:
    """The largest difference from the reference in float32, relative to its largest value."""
    result, expected = op(*_copies(args)), _reference(op, args)
    # The reference in the operator's own precision: how inaccurate a correct kernel may be.
    own = _flat(op.reference(*_copies(args))) if op.reference else []
    return _compare_tensors(f"{op.name} differs from its reference", _flat(result), _flat(expected), rtol, atol, own)


def _reference(op: Op, args: tuple[Any, ...]) -> Any:
    import torch

    if op.reference is None:
        return None
    widened = tuple(a.float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in _copies(args))
    return op.reference(*widened)


def _compare_gradients(op: Op, args: tuple[Any, ...], rtol: float | None, atol: float | None) -> float | None:
    import torch

    inputs = _leaves(args, grad=True)
    reference_inputs = _leaves(
        tuple(a.float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args), grad=True
    )
    outputs, expected = _flat(op(*inputs)), _flat(op.reference(*reference_inputs) if op.reference else None)
    pairs = [(o, w) for o, w in zip(outputs, expected, strict=False) if o.requires_grad]
    if not pairs:
        return None
    weights = [torch.randn_like(w) for _, w in pairs]
    torch.autograd.backward([o for o, _ in pairs], [g.to(o.dtype) for g, (o, _) in zip(weights, pairs, strict=True)])
    torch.autograd.backward([w for _, w in pairs], weights)
    grads = [(i.grad, r.grad) for i, r in zip(inputs, reference_inputs, strict=True) if isinstance(r, torch.Tensor)]
    both_exist = [(grad, expected) for grad, expected in grads if grad is not None and expected is not None]
    return _compare_tensors(
        f"the gradients of {op.name} differ from those of its reference",
        [grad for grad, _ in both_exist],
        [expected for _, expected in both_exist],
        rtol,
        atol,
    )


def _compare_tensors(
    message: str,
    results: list[Any],
    expected: list[Any],
    rtol: float | None,
    atol: float | None,
    own: Sequence[Any] = (),
) -> float:
    """Compare results with those of the reference; a result outside of the tolerance passes if it is as accurate as `own`."""
    from rocsolid.numerics import as_accurate, max_error, reference_tolerance, worst_excess

    if len(results) != len(expected):
        msg = f"{message}: it returns {len(results)} tensors, the reference {len(expected)}"
        raise VendorOpError(msg)
    largest_error = 0.0
    for index, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        if result.shape != wanted.shape:
            msg = f"{message}: result {index} has shape {list(result.shape)}, the reference {list(wanted.shape)}"
            raise VendorOpError(msg)
        relative, absolute = reference_tolerance(result.dtype, rtol, atol)
        error = (result.double() - wanted.double()).abs()
        largest = float(wanted.double().abs().max()) if wanted.numel() else 0.0
        largest_error = max(largest_error, max_error(result, wanted) if error.numel() else 0.0)
        if worst_excess(result, wanted, relative, absolute) <= 1:
            continue
        in_own = own[index] if index < len(own) and own[index].shape == wanted.shape else None
        if rtol is None and atol is None and in_own is not None and as_accurate(result, in_own, wanted):
            continue
        allowed = absolute + relative * largest
        msg = f"{message}: the largest error of result {index} is {float(error.max()):.3g}, the tolerance is {allowed:.3g}"
        if in_own is not None:
            msg += f"; the reference in {str(result.dtype).removeprefix('torch.')} has {max_error(in_own, wanted) * largest:.3g}"
        raise VendorOpError(msg)
    return largest_error


def _flat(value: object) -> list[Any]:
    import torch

    items = value if isinstance(value, (tuple, list)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]
