"""Parses torch's message about a graph break, and adds the cause, the fix and the user's line."""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from rocsolid.catalog.breaks import find_break_cause
from rocsolid.model.code_line import CodeLine
from rocsolid.model.compile_event import BreakReported
from rocsolid.model.compile_log import GraphBreak
from rocsolid.model.known_cause import KnownCause
from rocsolid.torchapi.dynamo.break_registry import registry_file
from rocsolid.torchapi.user_frames import is_user_file, read_code_line

_ID_IN_URL: Final = re.compile(r"/gb(\d{4})\.html", re.IGNORECASE)
_LABEL: Final = re.compile(r"^\s*(Explanation|Hint|Developer debug context|User code context):\s?(.*)$")
_RESUME_FUNCTION: Final = re.compile(r"torch_dynamo_resume_in_(.{1,300}?)_at_(\d+)")
LOOP_BREAK: Final = "graph break in loop"  # torch's name for a break that it cannot resume from
SECOND_BREAK: Final = "*** While handling this graph break, another graph break occurred: ***"
# Names of a function or method in torch's message, for the caret.
_NAMES_IN_MESSAGE: Final = (
    re.compile(r"call_method \S+ (\w+) "),
    re.compile(r"`(?:[\w.]+\.)?(\w+)\(?\)?`"),
    re.compile(r"qualname: (?:[\w.]+\.)?(\w+)"),
    re.compile(r"builtin (?:operator )?`?(\w+)"),
)


@dataclass(frozen=True, kw_only=True)
class BreakMessage:
    """The parts of torch's message about a graph break."""

    explanation: str = ""
    hints: tuple[str, ...] = ()
    context: str = ""
    exception: str = ""


def parse_message(message: str) -> BreakMessage:
    """Split a message into its parts. If it contains several breaks, the explanation is that of the last one, which torch reported."""
    parts: dict[str, list[str]] = {
        "Explanation": [],
        "Hint": [],
        "Developer debug context": [],
        "User code context": [],
    }
    label = ""
    rest: list[str] = []
    for line in message.splitlines():
        if found := _LABEL.match(line):
            label = found[1]
            parts[label].append(found[2].strip())
        elif not line.strip() or "For more details about this graph break" in line:
            label = ""
        elif label:
            parts[label][-1] += f" {line.strip()}"
        else:
            rest.append(line.strip())
    return BreakMessage(
        explanation=parts["Explanation"][-1] if parts["Explanation"] else "",
        hints=tuple(parts["Hint"]),
        context=parts["Developer debug context"][-1] if parts["Developer debug context"] else "",
        exception="\n".join(rest),
    )


@cache
def known_ids() -> dict[str, str]:
    """Return torch's ids of graph breaks by their names, from the registry file in the torch package."""
    file = registry_file()
    if file is None:
        return {}
    ids: dict[str, str] = {}
    for break_id_, entries in json.loads(file.read_text(encoding="utf-8")).items():
        for entry in entries:
            ids.setdefault(str(entry.get("Gb_type")), break_id_)
    return ids


def break_id(kind: str, message: str = "") -> str:
    """Return torch's id of a break, such as GB0170; empty if torch has none."""
    if known := known_ids().get(kind):
        return known
    found = _ID_IN_URL.findall(message)
    return f"GB{found[-1]}" if found else ""


def graph_break(reports: list[BreakReported], functions: Mapping[int, str]) -> GraphBreak:
    """Return a graph break with its cause, its fix and the user's line, given all reports of it; `functions` by compile."""
    # A break inside a loop may be reported twice: at the break, and when torch stops compiling the function.
    report = next((r for r in reports if r.kind == LOOP_BREAK), reports[0])
    inner = first_break(report)
    location = innermost_user_location(report.frames)
    code = read_code_line(location)
    known = _known_cause(inner, code.text)
    message = parse_message(inner.message)
    return GraphBreak(
        id=break_id(report.kind, report.message),
        kind=report.kind,
        code=_with_caret(code, inner, known),
        function=display_name(report.function),
        cause=known.cause if known else message.explanation or inner.kind,
        fix=known.fix if known else " ".join(message.hints) or "see torch's page about this graph break",
        example_before=known.before if known else "",
        example_after=known.after if known else "",
        torch_message=report.message,
        stack=report.frames,
        in_loop=report.kind == LOOP_BREAK,
        frame_skipped=any(r.frame_skipped for r in reports),
        skipped_function=next((display_name(functions.get(r.unit, "")) for r in reports if r.frame_skipped), ""),
        fatal=any(r.fatal for r in reports),
        count=len(reports),
    )


def first_break(report: BreakReported) -> BreakReported:
    """Return the break inside the loop, if torch reports that it cannot resume in a loop; otherwise the report itself."""
    if report.kind != LOOP_BREAK or SECOND_BREAK not in report.message:
        return report
    message = report.message.partition(SECOND_BREAK)[0].strip()
    lines_above = message.partition("\n  Explanation:")[0].strip().splitlines()
    return replace(report, kind=lines_above[-1].strip() if lines_above else report.kind, message=message)


def display_name(function: str) -> str:
    """Return a function's name for reports: without enclosing functions, and `f (resumed at line 7)` for torch's resume functions."""
    function = function.rpartition(".<locals>.")[2]
    return _RESUME_FUNCTION.sub(r"\1 (resumed at line \2)", function)


def innermost_user_location(frames: tuple[str, ...]) -> str:
    """Return the innermost `file:line` in the user's code; if there is none, the innermost in any code."""
    in_user_code = [location for location in frames if is_user_file(location.rpartition(":")[0])]
    return in_user_code[-1] if in_user_code else frames[-1]


def _known_cause(report: BreakReported, line: str) -> KnownCause | None:
    message = parse_message(report.message)
    return find_break_cause(report.kind, f"{message.context}\n{message.explanation}\n{message.exception}", line.strip())


def _with_caret(code: CodeLine, report: BreakReported, known: KnownCause | None) -> CodeLine:
    """Return the line with the columns of the expression, from the catalogue, torch's columns or names in torch's message."""
    if known and known.underline:
        found = read_code_line(code.location, *known.underline)
        if found.start < found.end:
            return found
    columns = dict(zip(report.frames, report.columns, strict=False)).get(code.location, (0, 0))
    line = code.text.encode()
    start, end = (len(line[:offset].decode(errors="replace")) for offset in columns)
    if start < end and _is_expression(code.text[start:end]):
        return replace(code, start=start, end=end)
    message = parse_message(report.message)
    names = [
        name for pattern in _NAMES_IN_MESSAGE for name in pattern.findall(f"{message.context} {message.explanation}")
    ]
    return read_code_line(code.location, *names) if names else code


def _is_expression(text: str) -> bool:
    """Return whether the columns fit the line. Torch reports no end line, so the columns of a call over several lines do not."""
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True
