"""A file imports a CUDA-only package at its top.

## What it does
Reports imports at module level, outside `try` and `if`, of packages that have no ROCm build. Packages that AMD ports under the same
name (flashinfer, apex) or that import everywhere (pynvml, nvtx) are not among them.

## Why it matters
On a machine with AMD GPUs the import fails. The whole module then cannot be imported, even by users who do not need
the package.

## Example
    import tensorrt

    def engine():
        return tensorrt.Builder()

    def parse(text):
        return text.split()

    def total(rows):
        return sum(rows)

    def report(rows):
        print(total(rows))

## Use instead
    try:
        import tensorrt
    except ImportError:
        tensorrt = None

    def engine():
        return tensorrt.Builder() if tensorrt is not None else None

## When to allow it
In a module that is imported only on NVIDIA.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch, walk
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC404",
    name="cuda-only-import",
    severity=Severity.WARNING,
    message="`import {subject}` fails on ROCm: the package exists only for CUDA",
    why="On a machine with AMD GPUs this module cannot be imported.",
    fix="Import it inside the function that uses it, or in a try block with a fallback for ImportError.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(source_evidence("the packages on PyPI", "Wheels and sources are for CUDA only."),),
)
_PACKAGES = frozenset(
    {
        "tensorrt",
        "torch_tensorrt",
        "cutlass",
        "cuda",
        "nvidia",
        "flash_attn_2_cuda",
        "flash_attn_3",
        "flash_attn_interface",
        "deep_gemm",
        "tensorrt_llm",
        "cudf",
        "cuml",
        "nvmath",
    }
)

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def check(source: Source) -> Iterator[SourceMatch]:
    """Imports that run whenever the module is imported."""
    reported: set[str] = set()
    for site in source.imports if not source.for_another_vendor else ():
        package = site.name.partition(".")[0]
        if (
            package in _PACKAGES
            and site.scope.kind == "module"
            and site.block is None
            and not _is_relative_import(site.node)
        ):
            if package not in reported and _is_useful_without_package(source):
                yield match_at(site, package)
            reported.add(package)


def _is_useful_without_package(source: Source) -> bool:
    """Whether less than a third of the functions and classes use these packages. Otherwise the file is for CUDA anyway."""
    if any("nvidia" in site.name.split(".") for site in source.imports):
        return False
    package_names = {name for name, full_name in source.aliases.items() if full_name.partition(".")[0] in _PACKAGES}
    top_level = [
        s.node
        for s in source.scopes.values()
        if s.parent is not None and s.parent.kind == "module" and s.kind != "lambda"
    ]
    mentioned = {
        t.name: {n.id for n in walk(t) if isinstance(n, ast.Name)} for t in top_level if isinstance(t, _DEFINITIONS)
    }
    using = {name for name, names in mentioned.items() if names & package_names}
    while callers := {name for name, names in mentioned.items() if name not in using and names & using}:
        using |= callers  # a function that calls a using function uses the package too
    return len(using) * 3 < len(mentioned)


def _is_relative_import(node: object) -> bool:
    return bool(getattr(node, "level", 0))
