"""A module is first called inside a capture.

## What it does
Reports a capture that contains the first call of an object that is created earlier in the same Python function.

## Why it matters
The first call creates handles, workspaces and lazily initialized buffers, loads kernels and may autotune them. In a capture such
work fails, or becomes part of the graph and is repeated in every replay.

## Example
    import torch

    def build(x):
        model = Net().cuda()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(x)
        return graph, out

## Use instead
    import torch

    def build(x):
        model = Net().cuda()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(x)
        return graph, out

## When to allow it
When the same operators already ran in this process, with the same shapes.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Assignment, Source, SourceMatch
from rocsolid.rules.source.captures import Capture, captures, dotted_name
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC216",
    name="module-first-called-in-capture",
    severity=Severity.WARNING,
    message="`{subject}` (created in line {created_line}) is first called inside this capture",
    why="The first call creates handles and workspaces and may autotune kernels; in a capture that fails or becomes part of the graph.",
    fix="Call it about three times on a side stream before the capture, with the same shapes; or use rs.capture.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence(
            "torch docs, CUDA semantics, CUDA Graphs", "A few warm-up iterations on a side stream come before capture."
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Captures that contain the first use of an object that the same Python function creates."""
    for capture in captures(source):
        created = {
            ast.unparse(a.target): a
            for a in source.assignments
            if a.scope is capture.scope
            and a.line < capture.site.line
            and a.value is not None
            and _creates_object(a.value)
        }
        for call in capture.calls() if created else ():
            name = dotted_name(call.func)
            if name in created and not _is_used_before(name, created[name], capture, source):
                yield match_at(capture.site, name, created_line=created[name].line)
                break


def _creates_object(value: ast.expr) -> bool:
    """Whether the value is `Net()` or `Net().cuda().eval()`: a call of a name with a capital letter."""
    while isinstance(value, ast.Call):
        if dotted_name(value.func).rpartition(".")[2][:1].isupper():
            return True
        value = value.func.value if isinstance(value.func, ast.Attribute) else value.func
    return False


def _is_used_before(name: str, created: Assignment, capture: Capture, source: Source) -> bool:
    """Whether a line between its creation and the capture calls the object, passes it to a call or gives it another name."""
    for sites in source.calls.values():
        for site in sites:
            if created.line < site.line < capture.site.line:
                call = site.call
                arguments = (*call.args, *(k.value for k in call.keywords))
                if dotted_name(call.func).startswith(f"{name}.forward") or dotted_name(call.func) == name:
                    return True
                if any(dotted_name(part) == name for argument in arguments for part in ast.walk(argument)):
                    return True
    renamed = (a for a in source.assignments if created.line < a.line < capture.site.line and a.value is not None)
    return any(name in {dotted_name(part) for part in ast.walk(a.value)} for a in renamed if a.value is not None)
