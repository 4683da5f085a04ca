"""Parses torch's reason for a recompile: which guard failed, for which argument, with which old and new value."""

import re
from typing import Final

from rocsolid.catalog.recompiles import find_recompile_cause
from rocsolid.model.code_line import CodeLine
from rocsolid.model.compile_log import Recompile
from rocsolid.torchapi.dynamo.failed_guards import guard_text, split_guard
from rocsolid.torchapi.user_frames import read_code_line

_STACK: Final = re.compile(r'File "([^"]+)", line (\d+)')
_TENSOR: Final = re.compile(
    r"tensor '(?P<name>.{1,300}?)' (?P<property>size|stride|rank|dtype|requires_grad)\b.{0,50}? mismatch(?: at index (?P<index>\d+))?\. "
    r"expected (?:requires_grad=)?(?P<old>\S+?),?(?: actual (?P<new>\S+))?$"
)
_TYPE: Final = re.compile(
    r"expected type of '(?P<name>.{1,300}?)' to be (?:a tensor type|<class 'torch\.).{0,300} found <class '(?P<new>[\w.]+)'>"
)
_OBJECT: Final = re.compile(r"___check_\w{1,100}\((?P<name>[^,()]+?)(?:\.__code__)?,")
_STATE: Final = re.compile(r"GLOBAL_STATE changed: (?P<name>\S+)")
# C++ names in torch's guards, and their names in Python.
_DTYPES: Final = {
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "BFloat16": "bfloat16",
    "Bool": "bool",
}


def recompile_from_reason(reason: str, *, called_from: str = "", new_value: str = "") -> Recompile:
    """Return the recompile for torch's reason, such as `0/0: tensor 'x' size mismatch at index 0. expected 3, actual 5`.

    Torch reports the line that uses the value for a guard on a value, but not for a guard on a tensor; there the line of the call is
    shown.
    """
    previous, colon, rest = reason.partition(": ")
    guard = guard_text(reason)
    comment = (rest if colon else reason).partition("\n")[0].partition("  # ")[2]
    hint = comment[comment.find("HINT:") :] if "HINT:" in comment else ""
    argument, old, new = guarded_argument(guard)
    known = find_recompile_cause(f"{guard} {hint}".strip())
    return Recompile(
        previous_compile_id=previous if colon else "",
        guard=guard,
        argument=argument,
        old_value=old,
        new_value=new or new_value,
        code=_code(reason, called_from, argument),
        cause=known.cause,
        fix=known.fix,
        example_before=known.before,
        example_after=known.after,
    )


def guarded_argument(guard: str) -> tuple[str, str, str]:
    """Return what a guard checks, its old value, and its new value if torch reports it; each may be empty.

    Example:
        >>> guarded_argument("tensor 'x' size mismatch at index 0. expected 3, actual 5")
        ('x.size(0)', '3', '5')

    """
    if found := _TENSOR.search(guard):
        return _tensor(found)
    if found := _TYPE.search(guard):
        return f"type({found['name']})", "", found["new"].removeprefix("torch.nn.parameter.")
    if found := _STATE.search(guard):
        return found["name"], "", ""
    expression, old = split_guard(guard)
    if expression:
        return expression, old, ""
    found = _OBJECT.search(guard)
    return (found["name"], "", "") if found else ("", "", "")


def _tensor(found: re.Match[str]) -> tuple[str, str, str]:
    name, property_, old, new = found["name"], found["property"], found["old"], found["new"] or ""
    if property_ in ("size", "stride"):
        return f"{name}.{property_}({found['index']})", old, new
    if property_ == "rank":
        return f"{name}.dim()", old, new
    if property_ == "dtype":
        return f"{name}.dtype", _DTYPES.get(old, old), _DTYPES.get(new, new)
    return f"{name}.requires_grad", str(bool(int(old))), str(not int(old))


def _code(reason: str, called_from: str, argument: str) -> CodeLine:
    lines = _STACK.findall(reason)
    if not lines:
        return read_code_line(called_from)
    names = re.findall(r"\w+", argument.partition("[")[0])
    return read_code_line(f"{lines[-1][0]}:{lines[-1][1]}", *names[-1:])
