"""Creates events about graphs and graph breaks from torch's own objects."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from rocsolid.model.compile_event import BreakReported
from rocsolid.torchapi.dynamo.compile_hooks import FALLBACK_ERRORS, Compile
from rocsolid.torchapi.private_api import private_name

INSTRUCTION = private_name(
    "torch._dynamo.symbolic_convert",
    "InstructionTranslatorBase.current_instruction",
    "2.4..2.12",  # later releases record the columns of frames
    of_instances=True,
    without="rocsolid breaks: no caret under the expression",
)

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')


def break_event(
    unit: int, error: BaseException, reason: str, source: Any, *, frame_skipped: bool = False
) -> BreakReported:
    """Create a graph break event from torch's exception; `source` is Dynamo's tracer, or the compile that failed."""
    stack = getattr(error, "real_stack", None) or ()
    frames = tuple(f"{frame.filename}:{frame.lineno}" for frame in stack)
    code = source.user_code if isinstance(source, Compile) else source.f_code
    class_names = {base.__name__ for base in type(error).__mro__}
    return BreakReported(
        unit=unit,
        kind=str(getattr(error, "gb_type", "") or _break_name(reason) or type(error).__name__),
        message=reason,
        frames=frames or (f"{code.co_filename}:{getattr(source, 'lineno', 0) or code.co_firstlineno}",),
        columns=tuple(_columns(frame) or _instruction_columns(frame, source) or (0, 0) for frame in stack),
        function=stack[-1].name if stack else code.co_name,
        frame_skipped=frame_skipped or bool(getattr(error, "skip_frame", False)),
        fatal=frame_skipped and not class_names & FALLBACK_ERRORS,
    )


def _columns(position: Any) -> tuple[int, int] | None:
    """Return the columns of a frame or instruction in its line, in bytes; torch 2.13 records those of frames, on Python 3.11 and later."""
    start = getattr(position, "colno", getattr(position, "col_offset", None))
    end = getattr(position, "end_colno", getattr(position, "end_col_offset", None))
    return (start, end) if start is not None and end is not None and start < end else None


def _instruction_columns(frame: Any, source: Any) -> tuple[int, int] | None:
    """Return the columns of the instruction that Dynamo's tracer is at, if it is in this frame's line and does not span several."""
    position = getattr(INSTRUCTION.of(source), "positions", None)
    lines = getattr(position, "lineno", None), getattr(position, "end_lineno", None)
    same_file = not isinstance(source, Compile) and source.f_code.co_filename == frame.filename
    return _columns(position) if same_file and lines == (frame.lineno, frame.lineno) else None


def _break_name(reason: str) -> str:
    """Return the name of a graph break from its message: the last line before the explanation, or the first of a message without one."""
    above, explained, _ = reason.partition("\n  Explanation:")
    lines = above.strip().splitlines()
    return lines[-1 if explained else 0].strip() if lines else ""


def operators(nodes: list[Any]) -> Mapping[str, int]:
    """Count operators by the name users know, such as `aten.mm` or `relu`; `getitem` is left out."""
    counts: Counter[str] = Counter()
    for node in nodes:
        if node.op == "call_function":
            packet = getattr(node.target, "overloadpacket", None)
            name = str(packet) if packet is not None else getattr(node.target, "__name__", str(node.target))
            if name != "getitem":
                counts[name] += 1
        elif node.op in ("call_method", "call_module"):
            counts[str(node.target)] += 1
    return dict(counts)


def node_location(node: Any) -> str:
    """Return the user's `file:line` of a node: the last frame of its stack."""
    frames = _FRAME.findall(node.stack_trace or "")
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else ""
