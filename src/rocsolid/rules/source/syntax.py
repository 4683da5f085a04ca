"""Helpers for the checks of source code: create matches, read arguments."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rocsolid.model.source import Assignment, Block, Edit, Region, Site, Source, SourceMatch, walk

_WORD_SEPARATORS: Final = re.compile(r"[\W_]+")
_MAX_NAMES: Final = 4  # between a use of a string and the string


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


def constant_text(node: ast.AST | None, source: Source, depth: int = 0) -> str:
    """The text of a string, also through names that the file assigns, f-strings, `+`, `.format(...)` and `tl.constexpr(...)`."""
    if node is None or depth > _MAX_NAMES:
        return ""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(constant_text(value, source, depth) for value in node.values)
    if isinstance(node, ast.BinOp):
        return constant_text(node.left, source, depth) + constant_text(node.right, source, depth)
    if isinstance(node, ast.Call):
        return _called_text(node, source, depth)
    if isinstance(node, ast.Attribute) and node.attr == "value":
        return constant_text(node.value, source, depth)
    values = (a.value for a in source.assignments_by_name.get(node.id, ())) if isinstance(node, ast.Name) else ()
    return next((text for value in values if (text := constant_text(value, source, depth + 1))), "")


def _called_text(node: ast.Call, source: Source, depth: int) -> str:
    function = source.scopes.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is not None and function.kind == "function":  # builds the text: all strings in it
        strings = (n.value for n in walk(function.node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
        return "\n".join(strings)
    is_format = isinstance(node.func, ast.Attribute) and node.func.attr == "format"
    parts = [node.func.value] if is_format else node.args[:1]  # type: ignore[attr-defined]
    return "".join(constant_text(part, source, depth) for part in parts)


def words(node: ast.AST) -> Iterator[str]:
    """Every name, attribute and string in an expression, in lower case."""
    for part in walk(node):
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


def enclosing_blocks(site: Site | Assignment) -> Iterator[Block]:
    """The blocks around a node, innermost first."""
    if site.block is not None:
        yield from site.block.self_and_parents()


def handles_errors(site: Site | Assignment) -> bool:
    """Whether the code is in a `try` block with a handler."""
    return any(
        block.kind == "try" and block.branch == "body" and getattr(block.node, "handlers", ())
        for block in enclosing_blocks(site)
    )


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """Every call in an expression."""
    yield from (part for part in walk(node) if isinstance(part, ast.Call))


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
