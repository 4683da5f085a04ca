"""Kernel signatures as text: `ops/add.py:add(x=*fp32, n=i32, BLOCK=1024, num_warps=4)`; the file is optional."""

import ast
import re
from pathlib import Path
from typing import Final

from rocsolid.dryrun.request import KernelSignature
from rocsolid.errors import InputError, UsageError

_SIGNATURE: Final = re.compile(r"\s*(?:(\S+\.py):)?(\w+)\s*\((.*)\)\s*$", re.DOTALL)
_TYPE: Final = re.compile(
    r"\*?(?:k?\*)?(?:fp8e4nv|fp8e5|fp8e4b8|fp8e5b16|fp16|bf16|fp32|fp64|i1|i8|i16|i32|i64|u8|u16|u32|u64)$"
    r"|tensordesc<\w+\[[^\]]+\]>$"
)
_COMMA: Final = re.compile(r",(?![^\[]*\])")  # not those of a block shape
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
    for part in filter(None, (piece.strip() for piece in _COMMA.split(match[3]))):
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
    return KernelSignature(name=match[2], file=match[1] or "", types=types, constants=constants, options=options)


def read_signatures(file: Path) -> list[KernelSignature]:
    """Read a file with one signature per line; empty lines and lines with `#` are comments. Raises InputError."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise InputError(msg) from error
    return [parse_signature(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def signature_text(signature: KernelSignature) -> str:
    """The signature as `parse_signature` reads it."""
    constants = {
        name: value if str(value).startswith("tl.") else repr(value) for name, value in signature.constants.items()
    }
    parts = {**signature.types, **constants, **signature.options}
    name = f"{signature.file}:{signature.name}" if signature.file else signature.name
    return f"{name}({', '.join(f'{argument}={value}' for argument, value in parts.items())})"


def _constant(value: str, part: str, text: str) -> object:
    if value.startswith("tl."):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError) as error:
        msg = f"in {text!r}, {part!r} is neither a type such as *bf16 or i32 nor a plain value"
        raise UsageError(msg) from error
