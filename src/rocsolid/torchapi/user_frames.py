"""Finds the user's own line in a stack that consists mostly of torch frames."""

import linecache
import sys
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from rocsolid.model.code_line import CodeLine, underline

_OURS = str(Path(__file__).parents[1]) + "/"
_STDLIB = sysconfig.get_paths()["stdlib"] + "/"


@lru_cache(maxsize=4096)
def is_user_file(file: str) -> bool:
    """Whether a file is user code: not torch, not rocsolid, not the standard library."""
    name = file.replace("\\", "/")
    if name.startswith("<"):
        return name == "<string>"  # python -c; other angle brackets are generated code
    torch = str(getattr(sys.modules.get("torch"), "__file__", None) or "")
    if torch and name.startswith(torch.replace("\\", "/").rpartition("/")[0] + "/"):
        return False
    if "/site-packages/" in name:
        return not name.rpartition("/site-packages/")[2].startswith(("torch/", "rocsolid/", "triton/"))
    return not name.startswith((_OURS, _STDLIB))


def user_location(frame: FrameType | None = None) -> str:
    """The innermost line of user code in a stack, as `file:line`; empty if there is none."""
    current: FrameType | None = frame or sys._getframe(1)
    while current is not None:
        if is_user_file(current.f_code.co_filename):
            return f"{current.f_code.co_filename}:{current.f_lineno}"
        current = current.f_back
    return ""


def innermost_user_location(stack: Iterable[tuple[FrameType, int]]) -> str:
    """The innermost line of user code in the frames of a traceback, as `file:line`; empty if there is none."""
    found = ""
    for frame, line in stack:
        if is_user_file(frame.f_code.co_filename):
            found = f"{frame.f_code.co_filename}:{line}"
    return found


def user_expression(trace: TracebackType | None) -> str:
    """The user's expression that failed, or before Python 3.11 its whole line; empty if it is not known."""
    found = None
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename):
            found = trace
        trace = trace.tb_next
    if found is None:
        return ""
    code = found.tb_frame.f_code
    line = linecache.getline(code.co_filename, found.tb_lineno).rstrip()
    if not hasattr(code, "co_positions"):
        return line.strip()
    first, last, start, end = list(code.co_positions())[found.tb_lasti // 2]
    if first != last or first != found.tb_lineno or start is None or end is None:
        return line.strip()
    return line.encode()[start:end].decode(errors="replace")


def read_code_line(location: str, *names: str) -> CodeLine:
    """Read the line at `file:line` from disk; a caret goes under the first expression called one of `names`."""
    file, _, number = location.rpartition(":")
    if not number.isdigit():
        return CodeLine(file=location, line=0)
    text = linecache.getline(file, int(number)).rstrip("\n")
    start, end = underline(text, *names) if names else (0, 0)
    return CodeLine(file=file, line=int(number), text=text, start=start, end=end)


def user_code_line(frame: FrameType | None = None) -> CodeLine | None:
    """The innermost line of the user's code that is running, with its expression underlined; None when there is none."""
    current: FrameType | None = frame or sys._getframe(1)
    while current is not None:
        if is_user_file(current.f_code.co_filename):
            return _code_line(current.f_code, current.f_lineno, current.f_lasti)
        current = current.f_back
    return None


def traceback_code_line(trace: TracebackType | None) -> CodeLine | None:
    """The innermost line of the user's code in a traceback, with its expression underlined; None when there is none."""
    found = None
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename):
            found = trace
        trace = trace.tb_next
    return _code_line(found.tb_frame.f_code, found.tb_lineno, found.tb_lasti) if found else None


def _code_line(code: CodeType, line: int, instruction: int) -> CodeLine:
    """A source line with the columns of one instruction, which Python 3.11 and later know."""
    text = linecache.getline(code.co_filename, line).rstrip("\n")
    start = end = 0
    if hasattr(code, "co_positions"):
        first, last, left, right = list(code.co_positions())[instruction // 2]
        if first == last == line and left is not None and right is not None:
            raw = text.encode()
            start, end = (len(raw[:column].decode(errors="replace")) for column in (left, right))
    return CodeLine(file=code.co_filename, line=line, text=text, start=start, end=end)
