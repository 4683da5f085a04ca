"""Parses a kernel signature: `add(x=*fp32, n=i32, BLOCK=1024, num_warps=4)`."""

import ast
import re
from typing import Final

from rocsolid.dryrun.request import KernelSignature
from rocsolid.errors import UsageError

_SIGNATURE: Final = re.compile(r"\s*(\w+)\s*\((.*)\)\s*$", re.DOTALL)
_TYPE: Final = re.compile(
    r"\*?(?:k?\*)?(?:fp8e4nv|fp8e5|fp8e4b8|fp8e5b16|fp16|bf16|fp32|fp64|i1|i8|i16|i32|i64|u8|u16|u32|u64)$"
)
OPTIONS: Final = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "num_ctas", "maxnreg")


def parse_signature(text: str) -> KernelSignature:
    """Parse a signature; raises UsageError that names the wrong part."""
    match = _SIGNATURE.match(text)
    if match is None:
        msg = f"write a kernel signature as name(argument=type, CONSTANT=value, num_warps=4), not {text!r}"
        raise UsageError(msg)
    types: dict[str, str] = {}
    constants: dict[str, object] = {}
    options: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in match[2].split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name.isidentifier():
            msg = f"in {text!r}, {part!r} is not argument=type or CONSTANT=value"
            raise UsageError(msg)
        if _TYPE.match(value):
            types[name] = value
        elif name in OPTIONS and value.isdigit():
            options[name] = int(value)
        else:
            constants[name] = _constant(value, part, text)
    return KernelSignature(name=match[1], types=types, constants=constants, options=options)


def _constant(value: str, part: str, text: str) -> object:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError) as error:
        msg = f"in {text!r}, {part!r} is neither a type such as *bf16 or i32 nor a plain value"
        raise UsageError(msg) from error
