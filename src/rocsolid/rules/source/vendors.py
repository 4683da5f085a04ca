"""Decide whether code is for one vendor only: by the conditions around it, by decorators, or by the names of functions and files.

A name counts as a vendor check if it says so (`is_hip`), or if the file assigns it from a check or defines it as a function that
returns one. For imported names, the linter looks into the module that defines them (`lint.vendor_guards`).
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from rocsolid.model.source import Assignment, Block, Scope, Site, Source, SourceMatch, walk
from rocsolid.rules.source.syntax import condition_of, literal, match_at, mentions, words

ROCM_WORDS: Final = ("hip", "rocm", "amd", "gfx", "cdna", "rdna", "aiter", "mi300", "mi350")
_VENDOR_WORDS: Final = (*ROCM_WORDS, "nvidia", "vendor", "version.cuda")
_VENDOR_PREFIXES: Final = (
    "rocm",
    "hip",
    "amd",
    "nvidia",
    "mps",
    "xpu",
    "npu",
    "hpu",
    "aiter",
    "cutlass",
    "cutedsl",
    "trtllm",
)
_NVIDIA_PACKAGES: Final = frozenset(
    "cutlass cuda cuda_bindings tensorrt nvmath flashinfer deep_gemm quack flash_mla tilelang nvidia".split()  # noqa: SIM905
)
_AMD_NAMES: Final = frozenset({"amd", "rocm", "hip", "aiter", "gfx942", "gfx950"})
_IMPORTED_CHECKS: Final = ("torch.version.cuda", "torch.version.hip")  # from torch.version import cuda as cuda_version
_NVIDIA_WORDS: Final = ("nvidia", "is_cuda", "is_nvidia", "version.cuda")
# A GPU model of NVIDIA, or a feature that only its GPUs have.
_NVIDIA_MODEL: Final = re.compile(
    r"(?:^|[^a-z])(?:sm_?\d{2,3}|hopper|blackwell|ampere|turing|ptx|tma|tensor_?desc|nvfp4|pdl)"
)
# Libraries that exist only for NVIDIA.
_NVIDIA_SOFTWARE: Final = re.compile(
    r"(?:^|[^a-z])(?:nvcc|cutlass|cute_?dsl|flash_?infer|deep_?gemm|trt_?llm|fa3|fa4|cudnn|marlin|machete|qutlass|nvshmem|hpc_?ops|cute$)"
)
_CAMEL_CASE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MAX_STATEMENTS: Final = 20  # of a function that is a vendor check
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def match_on_rocm(
    site: Site | Assignment,
    source: Source,
    subject: str = "",
    *,
    models: bool = True,
    **details: Any,  # noqa: ANN401 - those of match_at
) -> Iterator[SourceMatch]:
    """A match that counts only where the code runs on AMD GPUs. Yields nothing if the code shows that it does not.

    In a file that only imports NVIDIA's packages the match is uncertain, and its fact `one_vendor` says why.
    """
    imported = imported_nvidia_package(source)
    if (is_for_one_vendor(source) and not imported) or is_vendor_specific(site, source, models=models):
        return
    guards = tuple(sorted(set(_imported_conditions(site, source))))
    match = replace(match_at(site, subject, **details), on_rocm=True, guards=guards)
    if imported:
        match = replace(match, uncertain=True, facts={**match.facts, "one_vendor": f"imports {imported}"})
    yield match


def is_vendor_specific(site: Site | Assignment, source: Source, *, models: bool = True) -> bool:
    """Whether the code runs for one vendor only, or after a check of the vendor.

    True if a condition around the code or around the definition of its function, an earlier `if` that returns, or a decorator
    checks the vendor; if the file stops its import for other vendors; or if the function is named after a vendor. With `models`,
    a check for a GPU model of NVIDIA counts too.
    """
    if any(checks_vendor(condition, source, models=models) for condition in _conditions(site)):
        return True
    return any(_is_scope_vendor_specific(scope, source, models=models) for scope in site.scope.self_and_parents())


def _conditions(site: Site | Assignment) -> Iterator[ast.expr]:
    """The conditions around the code, around the function that contains it, and so on outwards."""
    yield from _conditions_of_blocks(site.block)
    for scope in site.scope.self_and_parents():
        yield from _conditions_of_blocks(scope.block)


def _conditions_of_blocks(block: Block | None) -> Iterator[ast.expr]:
    for enclosing in block.self_and_parents() if block is not None else ():
        condition = condition_of(enclosing)
        if condition is not None:
            yield condition


def _imported_conditions(site: Site | Assignment, source: Source) -> Iterator[str]:
    """Full names of what the conditions around the code use from other modules."""
    for condition in _conditions(site):
        for node in walk(condition):
            if isinstance(node, (ast.Name, ast.Attribute)):
                name = source.resolve(node)
                if "." in name and not name.startswith(("torch.", "self.", "?")):
                    yield name


@lru_cache(maxsize=64)
def _is_scope_vendor_specific(scope: Scope, source: Source, *, models: bool) -> bool:
    if isinstance(scope.node, ast.Module):
        exits = (s for s in scope.node.body if isinstance(s, ast.If) and _ends_import(s.body[-1]))
        return any(checks_vendor(statement.test, source, models=models) for statement in exits)
    decorators = getattr(scope.node, "decorator_list", ())
    if any(checks_vendor(decorator, source, models=models) for decorator in decorators):
        return True
    return _is_named_after_vendor(scope, models=models)


def _ends_import(statement: ast.stmt) -> bool:
    """Whether the statement ends the import of the file: `raise`, `sys.exit()`, `pytest.skip()`."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func).rpartition(".")[2] in ("skip", "exit", "importorskip")
    return isinstance(statement, ast.Raise)


def checks_vendor(condition: ast.AST, source: Source, *, models: bool = True) -> bool:
    """Whether a condition distinguishes vendors. `tensor.is_cuda` does not, `current_platform.is_cuda()` does."""
    return _says_vendor(condition, models=models) or any(
        name in vendor_checks(source) or source.aliases.get(name) in _IMPORTED_CHECKS for name in _names(condition)
    )


def _says_vendor(condition: ast.AST, *, models: bool) -> bool:
    if mentions(condition, _VENDOR_WORDS) or any(_calls_is_cuda(node) for node in walk(condition)):
        return True
    return any(_NVIDIA_SOFTWARE.search(word) or (models and _NVIDIA_MODEL.search(word)) for word in words(condition))


def _calls_is_cuda(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id.lower().strip("_") == "is_cuda"
    called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return called.startswith("is_cuda") and "alike" not in called  # `is_cuda_alike` is true on ROCm too


def _names(node: ast.AST) -> Iterator[str]:
    for part in walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


@lru_cache(maxsize=64)
def vendor_checks(source: Source) -> frozenset[str]:
    """The names in a file that depend on the vendor: variables, attributes, and short functions that return a check."""
    text = source.text.lower()
    if not any(word in text for word in (*_VENDOR_WORDS, "is_cuda")):
        return frozenset()
    values: list[tuple[str, ast.AST]] = [
        (assignment.name.rpartition(".")[2], assignment.value)
        for assignment in source.assignments
        if assignment.value is not None and not isinstance(assignment.value, (ast.Constant, ast.Dict, ast.List))
    ]
    short = {
        scope.name: scope.name.rpartition(".")[2]
        for scope in source.scopes.values()
        if scope.kind == "function" and sum(isinstance(n, ast.stmt) for n in walk(scope.node)) <= _MAX_STATEMENTS
    }
    values += [
        (short[site.scope.name], site.node)
        for site in (*source.returns, *source.conditions)
        if site.scope.name in short
    ]
    found = {name for name, value in values if _says_vendor(value, models=False)}
    for _ in range(3):  # a check of a check of a check
        found |= {name for name, value in values if name not in found and not found.isdisjoint(_names(value))}
    # Names of data that happen to be computed with a check say nothing about the vendor.
    return frozenset(name for name in found if name not in ("self", "device", "x", "out", "result", "dtype"))


def _is_named_after_vendor(scope: Scope, *, models: bool) -> bool:
    """Whether the name says that the function or class is for one vendor. The name `cuda_graph` does not."""
    name = _CAMEL_CASE.sub("_", scope.name).lower()
    parts = name.replace("_", ".").split(".")
    named = parts[-1] == "cuda" or any(part.startswith(_VENDOR_PREFIXES) for part in parts)
    return named or bool(_NVIDIA_SOFTWARE.search(name) or (models and _NVIDIA_MODEL.search(name)))


@lru_cache(maxsize=64)
def is_for_one_vendor(source: Source) -> bool:
    """Whether a file is for one vendor only, by its name or because it imports NVIDIA's packages at its top."""
    return _is_for_one_vendor_by_text(source) or bool(imported_nvidia_package(source))


def _is_for_one_vendor_by_text(source: Source) -> bool:
    if not _AMD_NAMES.isdisjoint(re.split(r"[/_.]", source.file.lower())):
        return True
    if any(word in source.text for word in ("multimem.", "NVLS", "nvls", "tcgen05")):
        return True  # instructions and links that only NVIDIA's GPUs have
    return source.for_another_vendor


@lru_cache(maxsize=64)
def imported_nvidia_package(source: Source) -> str:
    """The package of NVIDIA that a file imports at its top, if only that shows that the file is for NVIDIA; else empty."""
    if _is_for_one_vendor_by_text(source):
        return ""
    imported = (s.name.partition(".")[0] for s in source.imports if s.scope.kind == "module" and s.block is None)
    return next((package for package in imported if package in _NVIDIA_PACKAGES), "")


def is_true_on_rocm(condition: ast.expr) -> bool | None:
    """Whether a condition is true on ROCm; None if it does not check the vendor."""
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return _negated(is_true_on_rocm(condition.operand))
    if isinstance(condition, ast.BoolOp):
        return next((result for result in map(is_true_on_rocm, condition.values) if result is not None), None)
    if isinstance(condition, ast.Compare) and len(condition.ops) == 1 and literal(condition.comparators[0]) is None:
        names_rocm = _names_rocm(condition.left)
        if isinstance(condition.comparators[0], ast.Constant):  # `torch.version.hip is None`
            return _negated(names_rocm) if isinstance(condition.ops[0], (ast.Is, ast.Eq)) else names_rocm
        return names_rocm
    if isinstance(condition, ast.Compare) and len(condition.ops) == 1:  # `vendor == "amd"`
        names_rocm = _names_rocm(condition.comparators[0])
        return _negated(names_rocm) if isinstance(condition.ops[0], (ast.NotEq, ast.NotIn)) else names_rocm
    return _names_rocm(condition)


def _negated(value: bool | None) -> bool | None:  # noqa: FBT001 - the one operand of a negation
    return None if value is None else not value


def _names_rocm(node: ast.AST) -> bool | None:
    if mentions(node, ROCM_WORDS):
        return True
    return False if mentions(node, _NVIDIA_WORDS) else None


def uses_of(source: Source, name: str) -> Iterator[Site | Assignment]:
    """The calls, assignments and returns that use a function or class, except inside itself."""

    def is_used_in(node: ast.AST | None) -> bool:
        return node is not None and any(part == name for part in _names(node))

    for sites in source.calls.values():
        for site in sites:
            called = site.call.func.value if isinstance(site.call.func, ast.Subscript) else site.call.func
            arguments = [*site.call.args, *(k.value for k in site.call.keywords)]
            if is_used_in(called) or any(is_used_in(a) for a in arguments if isinstance(a, (ast.Name, ast.Attribute))):
                yield site
    for assignment in source.assignments:
        if is_used_in(assignment.value):
            yield assignment
    for site in source.returns:
        if isinstance(site.node, (ast.Name, ast.Attribute)) and is_used_in(site.node):
            yield site


def is_vendor_entry(site: Site | Assignment, name: str) -> bool:
    """Whether a table gives the function to one vendor: `{"cuda": f, "rocm": g}`."""
    value = site.value if isinstance(site, Assignment) else site.node
    for node in walk(value) if value is not None else ():
        if isinstance(node, ast.Dict):
            for key, entry in zip(node.keys, node.values, strict=True):
                if (
                    key is not None
                    and name in _names(entry)
                    and (_says_vendor(key, models=True) or literal(key) == "cuda")
                ):
                    return True
    return False
