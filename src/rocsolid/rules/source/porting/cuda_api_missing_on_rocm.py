"""Code uses a part of `torch.cuda` that ROCm builds do not have.

## What it does
Reports uses of green contexts, GPUDirect Storage, conditional graph nodes, `CUDAGraph.get_graph_data`, and device
properties that exist only in CUDA builds, unless the code checks the vendor.

## Why it matters
Nearly all of `torch.cuda` works on ROCm under the same name. These parts raise an error or do not exist.

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
When the code runs only on NVIDIA.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch, walk
from rocsolid.rules.source.syntax import condition_of, enclosing_blocks, handles_errors, mentions
from rocsolid.rules.source.vendors import match_on_rocm

RULE = Rule(
    code="SRC401",
    name="cuda-api-missing-on-rocm",
    severity=Severity.WARNING,
    message="`{subject}` does not exist on ROCm",
    why="{why}",
    fix="Use it only if torch.version.hip is None, and write another path for ROCm.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence("torch 2.13 cuda/_utils.py", "HIP has no shared_memory_per_block_optin among its properties."),
        source_evidence(
            "torch 2.13 include/ATen/cuda/CUDAGraph.h USE_ROCM", "Conditional nodes are left out of ROCm builds."
        ),
    ),
)
_CALLS = {
    "torch.cuda.GreenContext.create": "Green contexts exist only in CUDA builds.",
    "torch.cuda.green_contexts.GreenContext.create": "Green contexts exist only in CUDA builds.",
    "torch.cuda.gds.GdsFile": "GPUDirect Storage exists only in CUDA builds.",
    "torch.cuda.gds.gds_register_buffer": "GPUDirect Storage exists only in CUDA builds.",
    "torch.cuda.gds.gds_deregister_buffer": "GPUDirect Storage exists only in CUDA builds.",
}
_METHODS = {
    "begin_capture_to_if_node": "ROCm builds have no conditional graph nodes.",
    "begin_capture_to_while_loop_node": "ROCm builds have no conditional graph nodes.",
    "get_graph_data": "get_graph_data needs NVIDIA's cuda.bindings package.",
}
_PROPERTIES = {"shared_memory_per_block_optin": "ROCm builds have no such device property."}


def check(source: Source) -> Iterator[SourceMatch]:
    """Calls, methods of graphs, and device properties."""
    if source.module.startswith("torch."):
        return
    for name, why in _CALLS.items():
        yield from (m for s in source.calls_to(name) for m in match_on_rocm(s, source, name, why=why))
    for name, why in _METHODS.items():
        yield from (
            m
            for s in source.methods(name)
            if "graph" in s.name.lower()
            for m in match_on_rocm(s, source, s.name, why=why)
        )
    for name, why in _PROPERTIES.items():
        if name in source.text:
            unchecked = (s for s in _attributes(source, name) if not _is_existence_checked(s))
            yield from (m for s in unchecked for m in match_on_rocm(s, source, name, why=why))


def _is_existence_checked(site: Site) -> bool:
    """Whether an enclosing `if` checks that the attribute exists, or a `try` handles the error."""
    if handles_errors(site):
        return True
    conditions = (condition_of(block) for block in enclosing_blocks(site))
    return any(test is not None and mentions(test, ("hasattr", "getattr")) for test in conditions)


def _attributes(source: Source, name: str) -> Iterator[Site]:
    """The first read of an attribute in an assignment, a return or an argument."""
    expressions = [
        (assignment.value, assignment.scope, assignment.block)
        for assignment in source.assignments
        if assignment.value is not None
    ]
    expressions += [(s.node, s.scope, s.block) for s in source.returns if isinstance(s.node, ast.expr)]
    expressions += [(a, s.scope, s.block) for sites in source.calls.values() for s in sites for a in s.call.args]
    for value, scope, block in expressions:
        for node in walk(value):
            if isinstance(node, ast.Attribute) and node.attr == name:
                yield Site(node, name, scope, block)
                return
