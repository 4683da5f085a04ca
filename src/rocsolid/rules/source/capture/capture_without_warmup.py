"""A compiled function is first called inside a capture.

## What it does
Reports a capture that contains the first call of a compiled function, if `torch.compile` and the capture are in the
same Python function.

## Why it matters
The first call compiles, and compiling inside a capture fails; from torch 2.14 on, torch always raises an error. If it
does not fail, work that should run only once becomes part of the graph. Libraries also create their handles and
workspaces at the first call.

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
When other code has already called the function with the same shapes, in the same grad mode and thread.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Assignment, Source, SourceMatch
from rocsolid.rules.source.captures import Capture, calls_written_as, captures, dotted_name
from rocsolid.rules.source.settings import COMPILE_NAMES
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC205",
    name="capture-without-warmup",
    severity=Severity.CRITICAL,
    message="`{subject}` (compiled in line {compile_line}) is first called inside this capture",
    why="The first call compiles, and a compile inside a capture fails or corrupts the graph.",
    fix="Call it a few times with the same inputs before the capture, then torch.cuda.synchronize(); or use rs.capture.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured("capture-facts-on-h200#capture-first-compile", "A first compile inside a capture failed."),
        source_evidence(
            "torch 2.14.1 _dynamo/convert_frame.py", "A compile inside a capture raises TorchRuntimeError."
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Captures that contain the first call of a function compiled in the same Python function."""
    if "compile" not in source.text or not (regions := list(captures(source))):
        return
    compiled = [
        assignment
        for assignment in source.assignments
        if isinstance(assignment.value, ast.Call) and source.resolve(assignment.value.func) in COMPILE_NAMES
    ]
    for capture in regions if compiled else ():
        yield from _cold_calls(capture, compiled, source)


def _cold_calls(capture: Capture, compiled: list[Assignment], source: Source) -> Iterator[SourceMatch]:
    for call in capture.calls():
        name = dotted_name(call.func)
        compiles = [
            assignment
            for assignment in compiled
            if ast.unparse(assignment.target) == name
            and assignment.scope is capture.scope
            and assignment.line < call.lineno
        ]
        if not compiles:
            continue
        last_compile = compiles[-1]
        is_called = any(last_compile.line < site.line < capture.site.line for site in calls_written_as(source, name))
        is_passed = any(
            _passes(other_call, name) for other_call in _calls_between(source, last_compile.line, capture.site.line)
        )
        if not is_called and not is_passed:
            yield match_at(capture.site, name, compile_line=last_compile.line)
            return


def _calls_between(source: Source, first_line: int, last_line: int) -> Iterator[ast.Call]:
    for sites in source.calls.values():
        yield from (site.call for site in sites if first_line < site.line < last_line)


def _passes(call: ast.Call, name: str) -> bool:
    """Whether the function is passed to a call that may call it."""
    return any(ast.unparse(a) == name for a in call.args)
