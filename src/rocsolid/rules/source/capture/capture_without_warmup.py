"""A compiled function is captured before it has ever been called.

## What it does
Reports a capture whose body calls something that `torch.compile` returned in the same function, with no call of it above.

## Why it matters
The first call compile_calls. In a capture that fails, or from torch 2.14 on is refused, or puts one-time work into the graph:
libraries make their handles and workspaces at the first call too.

## Example
    import torch

    model = torch.compile(model)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x)

## Use instead
    import torch

    model = torch.compile(model)
    for _ in range(3):
        model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x)

## When to allow it
When the function has been called elsewhere with the same shapes, in the same grad mode and thread.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Assignment, Source, SourceMatch
from rocsolid.rules.source.captures import Capture, calls_written_as, captures, dotted_name
from rocsolid.rules.source.settings import COMPILE_NAMES
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC205",
    name="capture-without-warmup",
    severity=Severity.CRITICAL,
    message="{subject} was compiled in line {compiled} and is first called in this capture",
    why="The first call compile_calls, and a compile inside a capture fails or ruins the graph.",
    fix="Call it a few times with the same inputs before the capture, then synchronize; or use rs.capture.",
    check="rocsolid explain compile-inside-capture",
    since="0.1",
    evidence=(
        measured("capture-facts-on-h200#capture-first-compile", "A first compile inside a capture failed."),
        upstream("torch 2.14.1 _dynamo/convert_frame.py", "A compile inside a capture raises TorchRuntimeError."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Captures of what was compiled above in the same function and not called since."""
    compiled = [
        w for w in source.assignments if isinstance(w.value, ast.Call) and source.resolve(w.value.func) in COMPILE_NAMES
    ]
    if compiled:
        for capture in captures(source):
            yield from _first_called(capture, compiled, source)


def _first_called(capture: Capture, compiled: list[Assignment], source: Source) -> Iterator[SourceMatch]:
    for call in capture.calls():
        name = dotted_name(call.func)
        made = [
            w for w in compiled if ast.unparse(w.target) == name and w.scope is capture.scope and w.line < call.lineno
        ]
        if not made:
            continue
        last = made[-1]
        called = any(last.line < site.line < capture.site.line for site in calls_written_as(source, name))
        handed = any(_hands_over(n, name) for n in _between(source, last.line, capture.site.line))
        if not called and not handed:
            yield match_at(capture.site, name, compiled=last.line)
            return


def _between(source: Source, first: int, last: int) -> Iterator[ast.Call]:
    for sites in source.calls.values():
        yield from (site.call for site in sites if first < site.line < last)


def _hands_over(call: ast.Call, name: str) -> bool:
    """Whether the function is given to something that may call it."""
    return any(ast.unparse(a) == name for a in call.args)
