"""Breaks because the function deals with gradients itself."""

from typing import Final

from rocsolid.model.known_cause import KnownCause

GRADIENTS: Final = (
    KnownCause(
        gb_types=(
            "Unsupported Tensor.requires_grad_() call",
            "setattr() on Tensor.requires_grad",
            "requires_grad_() intermediate leaked as output",
            "returning intermediate with requires_grad_()",
        ),
        cause="requires_grad is switched on inside the function",
        fix="switch it on outside, for what is passed in",
        before="y = (x + 1).requires_grad_()",
        after="def step(x): ...   # and x.requires_grad_() outside",
    ),
    KnownCause(
        gb_types=("Attempted to use tensor creation function with requires_grad=True",),
        cause="a leaf that wants gradients is made inside the function",
        fix="make it outside and pass it in",
        before="w = torch.ones(3, requires_grad=True)",
        after="def step(x, w): ...",
    ),
    KnownCause(
        gb_types=(
            "Attempted to use `torch.nn.Parameter()` constructor with Dynamo",
            "`torch.nn.Parameter`: cannot convert to traceable tracable",
        ),
        cause="a parameter is made inside the function",
        fix="make it in the module's __init__; inside, a plain tensor will do",
        before="w = torch.nn.Parameter(x.sum(0))",
        after="w = x.sum(0)",
    ),
    KnownCause(
        gb_types=("Unsupported Tensor.backward() call",),
        cause="backward() is called inside the function",
        fix="return the loss and call backward() on it outside: its graph is compiled all the same",
        before="def step(x):\n    loss(x).backward()",
        after="def step(x):\n    return loss(x)\n\ncompiled(x).backward()",
    ),
    KnownCause(
        gb_types=("using `torch.autograd.grad` with `torch._dynamo.config.trace_autograd_ops=False`",),
        cause="torch.autograd.grad is called inside the function",
        fix="use torch.func.grad, which torch traces",
        before="torch.autograd.grad(f(x), x)[0]",
        after="torch.func.grad(f)(x)",
    ),
    KnownCause(
        gb_types=("Tensor with grad_fn()",),
        cause="grad_fn is asked for, and a traced tensor has none",
        fix="ask requires_grad instead",
        before="if y.grad_fn is not None: ...",
        after="if y.requires_grad: ...",
    ),
)
