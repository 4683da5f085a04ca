"""Something of `torch.cuda` is used that ROCm builds do not have.

## What it does
Reports green contexts, GPUDirect Storage, conditional nodes of graphs, graph data, and device properties that only CUDA
builds offer, where nothing around asks for the vendor.

## Why it matters
Nearly all of `torch.cuda` works on ROCm under the same name. These do not: they raise, or are not there.

## Example
    import torch

    shared = torch.cuda.get_device_properties(0).shared_memory_per_block_optin

## Use instead
    import torch

    properties = torch.cuda.get_device_properties(0)
    if torch.version.hip:
        shared = 65536
    else:
        shared = properties.shared_memory_per_block_optin

## When to allow it
When the code runs on NVIDIA only.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch
from rocsolid.rules.source.syntax import (
    condition_of,
    enclosing_blocks,
    is_nvidia_only,
    is_vendor_specific,
    match_at,
    mentions,
)

RULE = Rule(
    code="SRC401",
    name="cuda-api-missing-on-rocm",
    severity=Severity.WARNING,
    message="{subject} is used",
    why="{why}",
    fix="Ask for the vendor first (torch.version.hip is None), and do without it on ROCm.",
    check="rocsolid explain SRC401",
    since="0.1",
    evidence=(
        upstream("torch 2.13 cuda/_utils.py", "HIP has no shared_memory_per_block_optin among its properties."),
        upstream("torch 2.13 include/ATen/cuda/CUDAGraph.h USE_ROCM", "Conditional nodes are left out of ROCm builds."),
    ),
)
_CALLS = {
    "torch.cuda.GreenContext.create": "Green contexts are there in CUDA builds only.",
    "torch.cuda.green_contexts.GreenContext.create": "Green contexts are there in CUDA builds only.",
    "torch.cuda.gds.GdsFile": "GPUDirect Storage is there in CUDA builds only.",
    "torch.cuda.gds.gds_register_buffer": "GPUDirect Storage is there in CUDA builds only.",
    "torch.cuda.gds.gds_deregister_buffer": "GPUDirect Storage is there in CUDA builds only.",
}
_METHODS = {
    "begin_capture_to_if_node": "ROCm builds have no conditional nodes.",
    "begin_capture_to_while_loop_node": "ROCm builds have no conditional nodes.",
    "get_graph_data": "It needs the cuda.bindings package of NVIDIA.",
}
_PROPERTIES = {"shared_memory_per_block_optin": "ROCm builds have no such device property."}


def check(source: Source) -> Iterator[SourceMatch]:
    """Calls, methods of graphs, and device properties."""
    if is_nvidia_only(source):
        return
    if source.module.startswith("torch."):
        return
    for name, why in _CALLS.items():
        yield from (match_at(s, name, why=why) for s in source.calls_to(name) if not is_vendor_specific(s))
    for name, why in _METHODS.items():
        yield from (
            match_at(s, s.name, why=why)
            for s in source.methods(name)
            if "graph" in s.name.lower() and not is_vendor_specific(s)
        )
    for name, why in _PROPERTIES.items():
        if name in source.text:
            found = (s for s in _attributes(source, name) if not is_vendor_specific(s) and not _asked_for(s))
            yield from (match_at(s, name, why=why) for s in found)


def _asked_for(site: Site) -> bool:
    """Whether an `if` around asks whether the attribute is there."""
    tests = (condition_of(block) for block in enclosing_blocks(site))
    return any(test is not None and mentions(test, ("hasattr", "getattr")) for test in tests)


def _attributes(source: Source, name: str) -> Iterator[Site]:
    """Reads of an attribute in an assignment, a return or an argument, with the place they stand in."""
    holders = [(w.value, w.scope, w.block) for w in source.assignments if w.value is not None]
    holders += [(s.node, s.scope, s.block) for s in source.returns if isinstance(s.node, ast.expr)]
    holders += [(a, s.scope, s.block) for sites in source.calls.values() for s in sites for a in s.call.args]
    for value, scope, block in holders:
        for node in ast.walk(value):
            if isinstance(node, ast.Attribute) and node.attr == name:
                yield Site(node, name, scope, block)
                return
