"""Helpers for the checks of source code: create matches, read arguments, recognise vendor conditions."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from rocsolid.model.source import Assignment, Block, Edit, Region, Scope, Site, Source, SourceMatch

_WORD_SEPARATORS: Final = re.compile(r"[\W_]+")
ROCM_WORDS: Final = ("hip", "rocm", "amd", "gfx", "cdna")
_VENDOR_WORDS: Final = (*ROCM_WORDS, "nvidia", "vendor", "version.cuda")
_VENDOR_PREFIXES: Final = ("rocm", "hip", "amd", "nvidia", "mps", "xpu", "npu", "hpu")
_NVIDIA_PACKAGES: Final = frozenset({"cutlass", "cuda", "tensorrt", "nvmath", "flashinfer", "deep_gemm"})
_NVIDIA_WORDS: Final = ("nvidia", "is_cuda", "is_nvidia", "version.cuda")


def match_at(
    site: Site | Assignment,
    subject: str = "",
    *,
    region: Region = Region.NONE,
    inside: bool = False,
    uncertain: bool = False,
    severity: str = "",
    edit: Edit | None = None,
    underline: ast.AST | None = None,
    **facts: object,
) -> SourceMatch:
    """A match at a node. `subject` is the node's name by default.

    `underline` is the part of the node to mark in the report. It is ignored if it begins in another line.
    """
    line = getattr(site.node, "lineno", 1)
    marked = underline if underline is not None and getattr(underline, "lineno", 0) == line else site.node
    fits_one_line = getattr(marked, "end_lineno", 0) == line
    return SourceMatch(
        line=line,
        column=getattr(marked, "col_offset", 0) + 1,
        end_column=getattr(marked, "end_col_offset", -1) + 1 if fits_one_line else 0,
        subject=subject or site.name,
        scope=site.scope.name,
        region=region,
        inside=inside or (region is Region.CAPTURED and site.block is not None and site.block.captured),
        uncertain=uncertain,
        severity=severity,
        edit=edit,
        facts={name: str(value) for name, value in facts.items()},
    )


def match_in_region(site: Site, region: Region, subject: str = "", **facts: str) -> Iterator[SourceMatch]:
    """A match that counts only in the given region. Yields nothing if a condition excludes that region."""
    block = site.block
    excluded = block is not None and (block.not_compiled if region is Region.COMPILED else block.not_captured)
    if not excluded:
        yield replace(match_at(site, subject, region=region), facts=facts)


def argument(call: ast.Call, position: int, name: str = "") -> ast.expr | None:
    """An argument by position or by name."""
    if 0 <= position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return next((k.value for k in call.keywords if k.arg == name), None) if name else None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """A keyword argument."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def literal(node: ast.AST | None) -> object:
    """The value of a constant or a negated constant; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, (int, float)) else None
    return None


def words(node: ast.AST) -> Iterator[str]:
    """Every name, attribute and string in an expression, in lower case."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id.lower()
        elif isinstance(part, ast.Attribute):
            yield part.attr.lower()
            if isinstance(part.value, ast.Attribute):
                yield f"{part.value.attr}.{part.attr}".lower()
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value.lower()


def mentions(node: ast.AST, wanted: tuple[str, ...]) -> bool:
    """Whether a name in the expression has a part that begins with one of these words.

    `is_hip` and `hipblas` mention `hip`, `chip` does not.
    """
    return any(
        part in wanted or part.startswith(wanted)
        for word in words(node)
        for part in (word, *_WORD_SEPARATORS.split(word))
    )


def condition_of(block: Block) -> ast.expr | None:
    """The condition of an enclosing `if` or `while`."""
    return getattr(block.node, "test", None) if block.kind in ("if", "while", "after") else None


def is_vendor_specific(site: Site | Assignment) -> bool:
    """Whether the code runs for one vendor only.

    True if an enclosing `if`, an earlier `if` that returns, or a decorator checks the vendor; if the file stops its
    import for other vendors; or if the function is named after a vendor.
    """
    conditions = (condition_of(block) for block in enclosing_blocks(site))
    if any(condition is not None and checks_vendor(condition) for condition in conditions):
        return True
    return any(_is_scope_vendor_specific(scope) for scope in site.scope.self_and_parents())


@lru_cache(maxsize=64)
def _is_scope_vendor_specific(scope: Scope) -> bool:
    if isinstance(scope.node, ast.Module):
        exits = (s for s in scope.node.body if isinstance(s, ast.If) and _ends_import(s.body[-1]))
        return any(checks_vendor(statement.test) for statement in exits)
    decorators = getattr(scope.node, "decorator_list", ())
    return any(checks_vendor(decorator) for decorator in decorators) or _is_named_after_vendor(scope)


def _ends_import(statement: ast.stmt) -> bool:
    """Whether the statement ends the import of the file: `raise`, `sys.exit()`, `pytest.skip()`."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func).rpartition(".")[2] in ("skip", "exit", "importorskip")
    return isinstance(statement, ast.Raise)


def checks_vendor(condition: ast.AST) -> bool:
    """Whether a condition distinguishes vendors. `tensor.is_cuda` does not, `current_platform.is_cuda()` does."""
    return mentions(condition, _VENDOR_WORDS) or any(_calls_is_cuda(node) for node in ast.walk(condition))


def _calls_is_cuda(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id.lower().strip("_") == "is_cuda"
    called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return called.startswith("is_cuda") and "alike" not in called  # `is_cuda_alike` is true on ROCm too


def _is_named_after_vendor(scope: Scope) -> bool:
    """Whether the name says that the function or class is for one vendor. The name `cuda_graph` does not."""
    parts = scope.name.lower().replace("_", ".").split(".")
    return parts[-1] == "cuda" or any(part.startswith(_VENDOR_PREFIXES) for part in parts)


def is_nvidia_only(source: Source) -> bool:
    """Whether a file is for NVIDIA only, by its name or because it imports NVIDIA's packages at its top."""
    imported = (s.name for s in source.imports if s.scope.kind == "module" and s.block is None)
    return source.for_another_vendor or any(name.partition(".")[0] in _NVIDIA_PACKAGES for name in imported)


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


def enclosing_blocks(site: Site | Assignment) -> Iterator[Block]:
    """The blocks around a node, innermost first."""
    if site.block is not None:
        yield from site.block.self_and_parents()


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """Every call in an expression."""
    yield from (part for part in ast.walk(node) if isinstance(part, ast.Call))


def source_text(node: ast.AST | None, max_chars: int = 60) -> str:
    """The source of an expression on one line, shortened to `max_chars`."""
    if node is None:
        return ""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def site_of(source: Source, node: ast.AST) -> Site:
    """A site at module level, for a node whose function and blocks are not needed."""
    return Site(node, "", source.scopes[""], None)


def conditional_blocks(block: Block | None) -> list[Block]:
    """The enclosing blocks that may be skipped at run time, innermost first. Bodies of `with` and `try` always run."""
    blocks = [] if block is None else list(block.self_and_parents())
    return [b for b in blocks if b.kind in ("if", "while", "case", "after") or b.branch == "handler"]


def runs_before(first: Site | Assignment, later: Site | Assignment) -> bool:
    """Whether `first` always runs before `later`.

    True if both are in the same function, `first` is in an earlier line, and every `if` around `first` is also around `later`.
    """
    if first.scope is not later.scope or first.line >= later.line:
        return False
    later_blocks = conditional_blocks(later.block)
    return all(any(block is other for other in later_blocks) for block in conditional_blocks(first.block))
