"""The warp size is hard-coded as 32.

## What it does
Reports constants, parameters and keyword arguments named `warp_size` or `WARP_SIZE` with the value 32, unless the code
checks the vendor.

## Why it matters
A wavefront has 64 lanes on AMD's data-centre GPUs. Code that divides, indexes or allocates by 32 gives wrong
results there.

## Example
    WARP_SIZE = 32

    def warps(threads):
        return threads // WARP_SIZE

## Use instead
    import torch

    def warps(threads):
        return threads // torch.cuda.get_device_properties(0).warp_size

## When to allow it
When the code runs only on NVIDIA GPUs.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Assignment, Scope, Site, Source, SourceMatch
from rocsolid.rules.source.syntax import literal
from rocsolid.rules.source.vendors import match_on_rocm

RULE = Rule(
    code="SRC405",
    name="warp-size-hard-coded",
    severity=Severity.WARNING,
    message="`{subject} = 32` is wrong on AMD's data-centre GPUs",
    why="A wavefront has 64 lanes there.",
    fix="Use torch.cuda.get_device_properties(device).warp_size, or the warp size of Triton's target.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(source_evidence("triton 3.7 backends/amd/compiler.py", "warp_size is 32 from gfx10 on, and 64 before."),),
)
_NAMES = frozenset({"warp_size", "warpsize", "threads_per_warp", "warp_threads"})
_NVIDIA_LANES = 32


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments, parameter defaults and keyword arguments with such a name and the value 32."""
    if "arp" not in source.text and "ARP" not in source.text:  # warp_size, warpSize, WARP_SIZE; lower() takes longer
        return
    for assignment in source.assignments:
        name = assignment.name.rpartition(".")[2]
        if (
            name.lower() in _NAMES
            and literal(assignment.value) == _NVIDIA_LANES
            and not _is_intended(source, assignment)
        ):
            yield from match_on_rocm(assignment, source, name)
    for scope in source.scopes.values():
        yield from _parameter_defaults(scope, source)
    for site in (s for sites in source.calls.values() for s in sites if s.call.keywords):
        keyword = next((k for k in site.call.keywords if _is_hard_coded_warp_size(k.arg, k.value)), None)
        if keyword:
            yield from match_on_rocm(site, source, str(keyword.arg), underline=keyword)


def _is_intended(source: Source, assignment: Assignment) -> bool:
    """Whether the same name is elsewhere assigned a warp size that is read."""
    same_name = (a for a in source.assignments if a.name == assignment.name and a.scope is assignment.scope)
    return any(not isinstance(a.value, ast.Constant) for a in same_name)


def _is_hard_coded_warp_size(name: str | None, value: ast.AST | None) -> bool:
    return name is not None and name.lower() in _NAMES and literal(value) == _NVIDIA_LANES


def _parameter_defaults(scope: Scope, source: Source) -> Iterator[SourceMatch]:
    """Parameters that default to 32. Uncertain, because a caller may pass another value."""
    arguments = getattr(scope.node, "args", None)
    if not isinstance(arguments, ast.arguments):
        return
    positional = zip(reversed([*arguments.posonlyargs, *arguments.args]), reversed(arguments.defaults), strict=False)
    for parameter, default in (*positional, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)):
        if _is_hard_coded_warp_size(parameter.arg, default):
            site = Site(parameter, parameter.arg, scope, None)
            yield from match_on_rocm(site, source, parameter.arg, uncertain=True)
