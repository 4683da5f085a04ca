"""A function is warmed up in one grad mode and captured in another.

## What it does
Reports a capture whose grad mode differs from that of the warm-up: the same class or function called the captured
function earlier under `no_grad` or `inference_mode`, and the capture is not in that mode.

## Why it matters
The grad mode is a Dynamo guard of compiled code. In another mode the function compiles again, inside the capture, which
the warm-up was supposed to prevent. With some torch versions this happens without an error.

## Example
    import torch

    def capture(model, x):
        with torch.no_grad():
            model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(x)
        return graph, out

## Use instead
    import torch

    def capture(model, x):
        with torch.no_grad():
            model(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = model(x)
        return graph, out

## When to allow it
When the function is not compiled and does not depend on the grad mode.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Scope, Site, Source, SourceMatch
from rocsolid.rules.source.captures import calls_written_as, captures, dotted_name, grad_mode, grad_mode_of_statement
from rocsolid.rules.source.settings import compile_calls
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC206",
    name="warmup-in-another-grad-mode",
    severity=Severity.CRITICAL,
    message="`{subject}` is warmed up under {warmup_mode} (line {warmup_line}) but captured {capture_mode}",
    why="The grad mode is a Dynamo guard, so compiled code compiles again inside the capture. Other code keeps activations for a backward pass.",
    fix="Put the capture under the same torch.no_grad() or torch.inference_mode() as the warm-up.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "capture-facts-on-h200#capture-silent-recompile",
            "A layer that was warmed up under no_grad and captured without it was compiled again inside the capture.",
        ),
        source_evidence("torch 2.13 _dynamo/guards.py GRAD_MODE", "The grad mode is a guard of every compiled frame."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Captures whose grad mode differs from that of an earlier call of the same function; critical if the file compiles."""
    severity = "" if any(compile_calls(source)) else "WARNING"
    for capture in captures(source):
        mode = grad_mode_of_statement(capture, source) or grad_mode(capture.site.block, capture.scope, source)
        for name in dict.fromkeys(dotted_name(call.func) for call in capture.calls()):
            if name.startswith("?"):  # not a dotted name, such as `layers[0](x)`
                continue
            warmups = [s for s in calls_written_as(source, name) if _is_warmup_call(s, capture.site)]
            modes = {grad_mode(s.block, s.scope, source) for s in warmups}
            if warmups and mode not in modes and "" not in modes:
                first = warmups[0]
                capture_mode = f"under {mode}" if mode else "without it"
                warmup_mode = grad_mode(first.block, first.scope, source)
                yield match_at(
                    capture.site,
                    name,
                    severity=severity,
                    warmup_mode=warmup_mode,
                    warmup_line=first.line,
                    capture_mode=capture_mode,
                )
                break


def _is_warmup_call(call: Site, capture: Site) -> bool:
    if call.block is not None and call.block.captured:
        return False
    if call.scope is capture.scope:
        return call.line < capture.line
    return (
        _is_warmup_function(call.scope)
        and call.scope.enclosing_class is not None
        and call.scope.enclosing_class is capture.scope.enclosing_class
    )


def _is_warmup_function(scope: Scope) -> bool:
    return "warm" in scope.name.rpartition(".")[2].lower()
