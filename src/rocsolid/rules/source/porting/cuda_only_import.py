"""A package that exists for CUDA only is imported without a way out.

## What it does
Reports imports at the top of a file, outside of `try` and `if`, of packages that have no build for ROCm.

## Why it matters
On a machine with AMD GPUs the import fails, and the whole module with it, also for those who need nothing of it.

## Example
    import pynvml

    def memory():
        pynvml.nvmlInit()

    def parse(text):
        return text.split()

    def total(rows):
        return sum(rows)

    def report(rows):
        print(total(rows))

## Use instead
    try:
        import pynvml
    except ImportError:
        pynvml = None

    def memory():
        if pynvml is not None:
            pynvml.nvmlInit()

## When to allow it
In a module that is imported on NVIDIA only.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC404",
    name="cuda-only-import",
    severity=Severity.WARNING,
    message="{subject} is imported at the top, and it exists for CUDA only",
    why="On a machine with AMD GPUs the import fails, and this module with it.",
    fix="Import it where it is used, or in a try, and say what to do without it.",
    check="rocsolid explain SRC404",
    since="0.1",
    evidence=(upstream("the packages on PyPI", "Wheels and sources are for CUDA only."),),
)
_PACKAGES = frozenset(
    {
        "pynvml",
        "tensorrt",
        "torch_tensorrt",
        "transformer_engine",
        "cutlass",
        "cuda",
        "nvidia",
        "flash_attn_2_cuda",
        "flash_attn_3",
        "flash_attn_interface",
        "deep_gemm",
        "flashinfer",
        "tensorrt_llm",
        "nvtx",
        "cudf",
        "cuml",
        "nvmath",
        "apex_C",
        "amp_C",
    }
)

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def check(source: Source) -> Iterator[SourceMatch]:
    """Imports that run whenever the module is imported."""
    reported: set[str] = set()
    for site in source.imports if not source.for_another_vendor else ():
        package = site.name.partition(".")[0]
        if package in _PACKAGES and site.scope.kind == "module" and site.block is None and not _relative(site.node):
            if package not in reported and _useful_without(source):
                yield match_at(site, package)
            reported.add(package)


def _useful_without(source: Source) -> bool:
    """Whether most functions and classes at the top use nothing of such packages; else the file is for CUDA anyway."""
    if any("nvidia" in site.name.split(".") for site in source.imports):
        return False
    theirs = {name for name, meant in source.aliases.items() if meant.partition(".")[0] in _PACKAGES}
    tops = [
        s.node
        for s in source.scopes.values()
        if s.parent is not None and s.parent.kind == "module" and s.kind != "lambda"
    ]
    mentioned = {t.name: {n.id for n in ast.walk(t) if isinstance(n, ast.Name)} for t in tops if isinstance(t, _NAMED)}
    using = {name for name, names in mentioned.items() if names & theirs}
    while more := {name for name, names in mentioned.items() if name not in using and names & using}:
        using |= more  # what uses a user uses it too
    return len(using) * 3 < len(mentioned)


def _relative(node: object) -> bool:
    return bool(getattr(node, "level", 0))
