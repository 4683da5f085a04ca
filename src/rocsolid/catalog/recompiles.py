"""Why functions are compiled again, in plain words, and how each is fixed. Recognised by the guard that failed."""

from typing import Final

from rocsolid.model.known_cause import KnownCause

RECOMPILE_CAUSES: Final = (
    KnownCause(
        pattern=r"size mismatch at index .* (expected|actual) [01]\b",
        cause="a size of 0 or 1 came where it was something else before, or the other way round: torch always compiles these apart",
        fix="pad to at least 2 where that size is common, or accept the second compile",
    ),
    KnownCause(
        pattern=r"size mismatch at index",
        cause="a size changed",
        fix="say so before the first call: torch._dynamo.mark_dynamic(x, dim), or dynamic=True; or pad to a few fixed sizes",
        before="compiled(x)   # sizes differ from call to call",
        after="torch._dynamo.mark_dynamic(x, 0)\ncompiled(x)",
    ),
    KnownCause(
        pattern=r"stride mismatch",
        cause="a tensor lies differently in memory (a slice, a transpose)",
        fix="make it contiguous before the call",
        before="compiled(x[:, ::2])",
        after="compiled(x[:, ::2].contiguous())",
    ),
    KnownCause(
        pattern=r"rank mismatch",
        cause="a tensor has another number of dimensions",
        fix="bring it to one rank before the call: unsqueeze, flatten",
        before="compiled(x)   # [b, d] or [b, t, d]",
        after="compiled(x.reshape(-1, x.shape[-1]))",
    ),
    KnownCause(
        pattern=r"dtype mismatch",
        cause="a tensor came in another dtype",
        fix="cast it before the call, once and always to the same",
        before="compiled(x)",
        after="compiled(x.to(torch.bfloat16))",
    ),
    KnownCause(
        pattern=r"requires_grad mismatch",
        cause="a tensor wants gradients and did not before, or the other way round",
        fix="detach what needs none before the call",
        before="compiled(x)",
        after="compiled(x.detach())",
    ),
    KnownCause(
        pattern=r"dispatch key set mismatch|device index|device mismatch",
        cause="a tensor came from another device, or of another kind",
        fix="move it before the call, once and always to the same device",
        before="compiled(x)",
        after="compiled(x.to(device))",
    ),
    KnownCause(
        pattern=r"to be a tensor type",
        cause="a plain tensor came where a parameter was before, or the other way round",
        fix="pass one kind: parameters from the module, or detached tensors",
        before="compiled(x, torch.nn.Parameter(w))",
        after="compiled(x, w)",
    ),
    KnownCause(
        pattern=r"GLOBAL_STATE changed:.*grad_mode",
        cause="it was called with gradients on and off",
        fix="call it in the same mode always; warm up in the mode in which it will run",
        before="with torch.no_grad(): compiled(x)\ncompiled(x)",
        after="with torch.no_grad(): compiled(x)\nwith torch.no_grad(): compiled(x)",
    ),
    KnownCause(
        pattern=r"GLOBAL_STATE changed:.*autocast",
        cause="it was called inside and outside autocast",
        fix="call it in the same surroundings always, or put autocast inside the function",
        before="with torch.autocast('cuda'): compiled(x)\ncompiled(x)",
        after="with torch.autocast('cuda'): compiled(x)",
    ),
    KnownCause(
        pattern=r"GLOBAL_STATE changed|TORCH_FUNCTION_MODE_STACK|torch_function_mode",
        cause="a switch of the whole process changed (default dtype, deterministic algorithms, a mode)",
        fix="set it once at the start of the program",
    ),
    KnownCause(
        pattern=r"^\S*\s*\w[\w.\[\]'\"]*\.(training)\b|\.training (==|is)",
        cause="the module was switched between train and eval",
        fix="warm up both, once; or keep two copies of the module",
    ),
    KnownCause(
        pattern=r"HINT: torch.compile considers integer attributes|(self|s|mod|module|L\['self'\])\.\w+ == -?\d",
        cause="a number on the module changes from call to call, and is baked into the graph",
        fix="keep it as a tensor (register_buffer), or count outside the compiled part",
        before="self.step += 1",
        after="self.step = torch.zeros((), dtype=torch.long)   # in __init__\nself.step.add_(1)",
    ),
    KnownCause(
        pattern=r"G\[['\"]\w+['\"]\]",
        cause="a global of the module changed its value, and it is baked into the graph",
        fix="pass it in, as a tensor where it changes often",
        before="def step(x): return x * SCALE",
        after="def step(x, scale): return x * scale",
    ),
    KnownCause(
        pattern=r"len\(",
        cause="a list, tuple or dict has another length",
        fix="pad it to one length, or pass one tensor in place of many",
        before="compiled(x, [a, b])",
        after="compiled(x, torch.stack([a, b]))",
    ),
    KnownCause(
        pattern=r"is None|is not None|NoneType",
        cause="an argument was None before and is not now, or the other way round",
        fix="make two functions of it, or always pass a tensor",
        before="compiled(x, mask=None)",
        after="compiled(x, mask=ALL)",
    ),
    KnownCause(
        pattern=r" is (not )?[A-Za-z_]\w*\s*(#|$)|duplicate tensor|___check_.*alias",
        cause="the same tensor was passed twice before and two are now, or the other way round",
        fix="pass tensors of their own",
        before="compiled(x, x)",
        after="compiled(x, x.clone())",
    ),
    KnownCause(
        pattern=r"___check_obj_id\(.*__code__|___check_function|___check_obj_id|___check_type_id|___check_current",
        cause="another function or object was passed in, and its code is part of the graph",
        fix="pass the same object every time; make lambdas and partials once, outside the loop",
        before="for x in batches: compiled(x, lambda y: y + 1)",
        after="plus = lambda y: y + 1\nfor x in batches: compiled(x, plus)",
    ),
    KnownCause(
        pattern=r"== ['\"]",
        cause="a string has another value, and it is baked into the graph",
        fix="compile one function per value: a dict of compiled functions",
        before="compiled(x, 'train')",
        after="compiled[kind](x)",
    ),
    KnownCause(
        pattern=r"== -?\d+\.\d",
        cause="a Python float changes from call to call, and is baked into the graph",
        fix="pass it as a tensor",
        before="compiled(x, 0.1 * step)",
        after="compiled(x, torch.tensor(0.1 * step))",
    ),
    KnownCause(
        pattern=r"== -?\d+",
        cause="a Python int changed; after the second value torch makes it dynamic, unless it decides a shape or a branch",
        fix="pass it as a tensor, or mark it dynamic from the start with dynamic=True",
        before="compiled(x, step)",
        after="compiled(x, torch.tensor(step))",
    ),
    KnownCause(
        pattern=r"",
        cause="something the graph was made for is different now",
        fix="read the guard: the left side names what changed; pass it as a tensor, or keep it the same",
    ),
)


def find_recompile_cause(guard: str) -> KnownCause:
    """The fix for a guard that failed; the last of the table fits any."""
    return next(fix for fix in RECOMPILE_CAUSES if fix.matches("", guard))
