"""A compiled function is first called inside a capture.

## What it does
Reports a capture whose body calls a function that `torch.compile` returned in the same function, without an earlier
call.

## Why it matters
The first call compiles. Inside a capture this fails; from torch 2.14 on, it is an error. Or it puts one-time work into
the graph: libraries also create their handles and workspaces at the first call.

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
When the function was called elsewhere with the same shapes, in the same grad mode and thread.
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
    message="`{subject}` (compiled in line {compiled}) is first called inside this capture",
    why="The first call compiles, and a compile inside a capture fails or corrupts the graph.",
    fix="Call it a few times with the same inputs before the capture, then torch.cuda.synchronize(); or use rs.capture.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured("capture-facts-on-h200#capture-first-compile", "A first compile inside a capture failed."),
        upstream("torch 2.14.1 _dynamo/convert_frame.py", "A compile inside a capture raises TorchRuntimeError."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Captures of functions that were compiled in the same function and not called since."""
    compiled = [
        w for w in source.assignments if isinstance(w.value, ast.Call) and source.resolve(w.value.func) in COMPILE_NAMES
    ]
    if compiled:
        for capture in captures(source):
            yield from _first_called(capture, compiled, source)


def _first_called(capture: Capture, compiled: list[Assignment], source: Source) -> Iterator[SourceMatch]:
    for call in capture.calls():
        name = dotted_name(call.func)
        compiles = [
            w for w in compiled if ast.unparse(w.target) == name and w.scope is capture.scope and w.line < call.lineno
        ]
        if not compiles:
            continue
        last = compiles[-1]
        called = any(last.line < site.line < capture.site.line for site in calls_written_as(source, name))
        passed = any(_passes(n, name) for n in _between(source, last.line, capture.site.line))
        if not called and not passed:
            yield match_at(capture.site, name, compiled=last.line)
            return


def _between(source: Source, first: int, last: int) -> Iterator[ast.Call]:
    for sites in source.calls.values():
        yield from (site.call for site in sites if first < site.line < last)


def _passes(call: ast.Call, name: str) -> bool:
    """Whether the function is passed to a call that may call it."""
    return any(ast.unparse(a) == name for a in call.args)
