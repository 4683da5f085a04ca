"""Finds the user's own line in a stack that consists mostly of torch frames."""

import linecache
import sys
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from rocsolid.model.code_line import CodeLine, underline

_ROCSOLID_FOLDER = str(Path(__file__).parents[1]) + "/"
_STDLIB_FOLDER = sysconfig.get_paths()["stdlib"] + "/"


@lru_cache(maxsize=4096)
def is_user_file(file: str) -> bool:
    """Return whether a file is user code: not torch, Triton, rocsolid or the standard library."""
    name = file.replace("\\", "/")
    if name.startswith("<"):
        return name == "<string>"  # the code of `python -c`; other names in angle brackets are generated code
    if is_torch_file(name):
        return False
    if "/site-packages/" in name:
        return not name.rpartition("/site-packages/")[2].startswith(("torch/", "rocsolid/", "triton/"))
    return not name.startswith((_ROCSOLID_FOLDER, _STDLIB_FOLDER))


def is_torch_file(file: str) -> bool:
    """Return whether a file belongs to the imported torch."""
    torch = str(getattr(sys.modules.get("torch"), "__file__", None) or "").replace("\\", "/")
    return bool(torch) and file.replace("\\", "/").startswith(torch.rpartition("/")[0] + "/")


def user_location(frame: FrameType | None = None) -> str:
    """Return the innermost line of user code in a stack, as `file:line`; empty if there is none."""
    current: FrameType | None = frame or sys._getframe(1)
    while current is not None:
        if is_user_file(current.f_code.co_filename):
            return f"{current.f_code.co_filename}:{current.f_lineno}"
        current = current.f_back
    return ""


def innermost_user_location(stack: Iterable[tuple[FrameType, int]]) -> str:
    """Return the innermost line of user code in the frames of a traceback, as `file:line`; empty if there is none."""
    location = ""
    for frame, line in stack:
        if is_user_file(frame.f_code.co_filename):
            location = f"{frame.f_code.co_filename}:{line}"
    return location


def user_expression(trace: TracebackType | None) -> str:
    """Return the user's expression that failed (before Python 3.11 its whole line); empty if it is not known."""
    innermost = None
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename):
            innermost = trace
        trace = trace.tb_next
    if innermost is None:
        return ""
    code = innermost.tb_frame.f_code
    line = linecache.getline(code.co_filename, innermost.tb_lineno).rstrip()
    if not hasattr(code, "co_positions"):
        return line.strip()
    first, last, start, end = list(code.co_positions())[innermost.tb_lasti // 2]
    if first != last or first != innermost.tb_lineno or start is None or end is None:
        return line.strip()
    return line.encode()[start:end].decode(errors="replace")


def read_code_line(location: str, *names: str) -> CodeLine:
    """Read the line at `file:line` from disk; the first expression with one of `names` is underlined."""
    file, _, number = location.rpartition(":")
    if not number.isdigit():
        return CodeLine(file=location, line=0)
    text = linecache.getline(file, int(number)).rstrip("\n")
    start, end = underline(text, *names) if names else (0, 0)
    return CodeLine(file=file, line=int(number), text=text, start=start, end=end)


def user_code_line(frame: FrameType | None = None) -> CodeLine | None:
    """Return the innermost line of user code in a stack, with the running expression underlined; None if there is none."""
    current: FrameType | None = frame or sys._getframe(1)
    while current is not None:
        if is_user_file(current.f_code.co_filename):
            return _code_line(current.f_code, current.f_lineno, current.f_lasti)
        current = current.f_back
    return None


def traceback_code_line(trace: TracebackType | None) -> CodeLine | None:
    """Return the innermost line of user code in a traceback, with the failed expression underlined; None if there is none."""
    innermost = None
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename):
            innermost = trace
        trace = trace.tb_next
    return _code_line(innermost.tb_frame.f_code, innermost.tb_lineno, innermost.tb_lasti) if innermost else None


def _code_line(code: CodeType, line: int, instruction: int) -> CodeLine:
    """Return a source line with the columns of one instruction, which only Python 3.11 and later provide."""
    text = linecache.getline(code.co_filename, line).rstrip("\n")
    start = end = 0
    if hasattr(code, "co_positions"):
        first, last, left, right = list(code.co_positions())[instruction // 2]
        if first == last == line and left is not None and right is not None:
            raw = text.encode()
            start, end = (len(raw[:column].decode(errors="replace")) for column in (left, right))
    return CodeLine(file=code.co_filename, line=line, text=text, start=start, end=end)
