"""Causes of recompiles, each with its fix. A cause is recognised by the text of the Dynamo guard that failed."""

from typing import Final

from rocsolid.model.known_cause import KnownCause

# The first matching cause is used, so special causes come before general ones.
RECOMPILE_CAUSES: Final = (
    KnownCause(
        pattern=r"size mismatch at index .* (expected|actual) [01]\b",
        cause="a tensor size changed to or from 0 or 1, which torch always compiles separately",
        fix="pad to at least 2 if this size is common, or accept the second compile",
    ),
    KnownCause(
        pattern=r"size mismatch at index",
        cause="a tensor size changed",
        fix="`torch._dynamo.mark_dynamic(x, dim)` before the first call, or `torch.compile(f, dynamic=True)`; or pad to a few fixed sizes",
        before="compiled(x)   # sizes differ from call to call",
        after="torch._dynamo.mark_dynamic(x, 0)\ncompiled(x)",
    ),
    KnownCause(
        pattern=r"stride mismatch",
        cause="the strides of a tensor changed (a slice or a transpose)",
        fix="`x.contiguous()` before the call",
        before="compiled(x[:, ::2])",
        after="compiled(x[:, ::2].contiguous())",
    ),
    KnownCause(
        pattern=r"rank mismatch",
        cause="the number of dimensions of a tensor changed",
        fix="`unsqueeze`, `flatten` or `reshape` to one rank before the call",
        before="compiled(x)   # [b, d] or [b, t, d]",
        after="compiled(x.reshape(-1, x.shape[-1]))",
    ),
    KnownCause(
        pattern=r"dtype mismatch",
        cause="the dtype of a tensor changed",
        fix="`x.to(dtype)` before the call, always to the same dtype",
        before="compiled(x)",
        after="compiled(x.to(torch.bfloat16))",
    ),
    KnownCause(
        pattern=r"requires_grad mismatch",
        cause="`requires_grad` of a tensor changed",
        fix="`x.detach()` before the call for tensors that need no gradient",
        before="compiled(x)",
        after="compiled(x.detach())",
    ),
    KnownCause(
        pattern=r"dispatch key set mismatch|device index|device mismatch",
        cause="the device or the dispatch keys of a tensor changed",
        fix="`x.to(device)` before the call, always to the same device",
        before="compiled(x)",
        after="compiled(x.to(device))",
    ),
    KnownCause(
        pattern=r"to be a tensor type|expected type of .* to be <class 'torch\.",  # the second since torch 2.15
        cause="an argument changed between `torch.nn.Parameter` and a plain tensor",
        fix="always pass the same type: the module's parameter, or a detached tensor",
        before="compiled(x, torch.nn.Parameter(w))",
        after="compiled(x, w)",
    ),
    KnownCause(
        pattern=r"GLOBAL_STATE changed:.*grad_mode",
        cause="grad mode changed: called both with and without `torch.no_grad()`",
        fix="always call it in the same grad mode, also during warm-up",
        before="with torch.no_grad(): compiled(x)\ncompiled(x)",
        after="with torch.no_grad(): compiled(x)\nwith torch.no_grad(): compiled(x)",
    ),
    KnownCause(
        pattern=r"GLOBAL_STATE changed:.*autocast",
        cause="autocast changed: called both inside and outside `torch.autocast`",
        fix="always call it inside the same `torch.autocast`, or put `torch.autocast` inside the function",
        before="with torch.autocast('cuda'): compiled(x)\ncompiled(x)",
        after="with torch.autocast('cuda'): compiled(x)\nwith torch.autocast('cuda'): compiled(x)",
    ),
    KnownCause(
        pattern=r"GLOBAL_STATE changed|TORCH_FUNCTION_MODE_STACK|torch_function_mode",
        cause="global torch state changed (default dtype, deterministic algorithms, a torch function mode)",
        fix="set it once at the start of the program",
    ),
    KnownCause(
        pattern=r"^\S*\s*\w[\w.\[\]'\"]*\.(training)\b|\.training (==|is)",
        cause="`module.training` changed: the module was switched between `train()` and `eval()`",
        fix="call it once in each mode during the warm-up, or keep two copies of the module",
    ),
    KnownCause(
        pattern=r"HINT: torch.compile considers integer attributes|(self|s|mod|module|L\['self'\])\.\w+ == -?\d",
        cause="an int attribute of the module changes from call to call, and its value is a constant of the compiled code",
        fix="make it a buffer (`register_buffer`), or count outside the compiled function",
        before="self.step += 1",
        after="self.register_buffer('step', torch.zeros((), dtype=torch.long))   # in __init__\nself.step.add_(1)",
    ),
    KnownCause(
        pattern=r"G\[['\"]\w+['\"]\]",
        cause="a global variable changed, and its value is a constant of the compiled code",
        fix="pass it as an argument, as a tensor if it changes often",
        before="def step(x): return x * SCALE",
        after="def step(x, scale): return x * scale",
    ),
    KnownCause(
        pattern=r"len\(",
        cause="the length of a list, tuple or dict changed",
        fix="pad it to one length, or pass one stacked tensor",
        before="compiled(x, [a, b])",
        after="compiled(x, torch.stack([a, b]))",
    ),
    KnownCause(
        pattern=r"is None|is not None|NoneType",
        cause="an argument changed between None and a value",
        fix="always pass a tensor, or compile two functions",
        before="compiled(x, mask=None)",
        after="compiled(x, mask=torch.ones_like(x, dtype=torch.bool))",
    ),
    KnownCause(
        pattern=r" is (not )?[A-Za-z_]\w*\s*(#|$)|duplicate tensor|___check_.*alias",
        cause="the same tensor was passed for two arguments in one call, and two different tensors in another",
        fix="always pass separate tensors: `x.clone()`",
        before="compiled(x, x)",
        after="compiled(x, x.clone())",
    ),
    KnownCause(
        pattern=r"___check_obj_id\(.*__code__|___check_function|___check_obj_id|___check_type_id|___check_current",
        cause="a different function or object was passed, and its code is part of the compiled code",
        fix="pass the same object every time; create lambdas and partials once, outside the loop",
        before="for x in batches: compiled(x, lambda y: y + 1)",
        after="plus = lambda y: y + 1\nfor x in batches: compiled(x, plus)",
    ),
    KnownCause(
        pattern=r"== ['\"]",
        cause="a string argument changed, and its value is a constant of the compiled code",
        fix="compile one function per value, for example in a dict",
        before="compiled(x, 'train')",
        after="compiled['train'](x)",
    ),
    KnownCause(
        pattern=r"== -?\d+\.\d",
        cause="a Python float changes from call to call, and its value is a constant of the compiled code",
        fix="pass it as a tensor: `torch.tensor(value)`",
        before="compiled(x, 0.1 * step)",
        after="compiled(x, torch.tensor(0.1 * step))",
    ),
    KnownCause(
        pattern=r"== -?\d+",
        cause="a Python int changed; after the second value torch makes it dynamic, unless it decides a shape or a branch",
        fix="pass it as a tensor: `torch.tensor(value)`; or `torch.compile(f, dynamic=True)`",
        before="compiled(x, step)",
        after="compiled(x, torch.tensor(step))",
    ),
    KnownCause(
        pattern=r"",
        cause="a Dynamo guard failed",
        fix="read the guard: its left side names what changed; pass it as a tensor, or keep it the same",
    ),
)


def find_recompile_cause(guard: str) -> KnownCause:
    """The cause of a recompile, from the guard that failed; the last entry matches any guard."""
    return next(cause for cause in RECOMPILE_CAUSES if cause.matches("", guard))
