"""Questions that the rules ask of a piece of source."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from rocsolid.model.source import Block, Edit, Region, Scope, Sighting, Site, Source, Write

_PARTS: Final = re.compile(r"[\W_]+")
ROCM_WORDS: Final = ("hip", "rocm", "amd", "gfx", "cdna")
_VENDOR_WORDS: Final = (*ROCM_WORDS, "nvidia", "vendor", "version.cuda")
_VENDORS: Final = ("rocm", "hip", "amd", "nvidia", "mps", "xpu", "npu", "hpu")
_NVIDIA_PACKAGES: Final = frozenset({"cutlass", "cuda", "tensorrt", "nvmath", "flashinfer", "deep_gemm"})
_NVIDIA_WORDS: Final = ("nvidia", "is_cuda", "is_nvidia", "version.cuda")


def saw(
    at: Site | Write,
    subject: str = "",
    *,
    region: Region = Region.NONE,
    inside: bool = False,
    doubtful: bool = False,
    severity: str = "",
    edit: Edit | None = None,
    **facts: object,
) -> Sighting:
    """A sighting at a node, about `subject` (the node's own name unless said otherwise)."""
    return Sighting(
        line=getattr(at.node, "lineno", 1),
        column=getattr(at.node, "col_offset", 0) + 1,
        subject=subject or at.name,
        scope=at.scope.name,
        region=region,
        inside=inside or (region is Region.CAPTURED and at.block is not None and at.block.captured),
        doubtful=doubtful,
        severity=severity,
        edit=edit,
        facts={name: str(value) for name, value in facts.items()},
    )


def in_region(site: Site, region: Region, subject: str = "", **facts: str) -> Iterator[Sighting]:
    """A sighting that counts in such a region only; none where the code around says that it is not run there."""
    block = site.block
    skipped = block is not None and (block.not_compiled if region is Region.COMPILED else block.not_captured)
    if not skipped:
        yield replace(saw(site, subject, region=region), facts=facts)


def argument(call: ast.Call, position: int, name: str = "") -> ast.expr | None:
    """An argument by position or by name."""
    if 0 <= position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return next((k.value for k in call.keywords if k.arg == name), None) if name else None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """A keyword argument."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def literal(node: ast.AST | None) -> object:
    """The value of a constant, also with a minus before it; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, (int, float)) else None
    return None


def words(node: ast.AST) -> Iterator[str]:
    """Every name, attribute and text in an expression, in small letters."""
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
    """Whether a name in an expression has a part that begins so: `is_hip` and `hipblas` mention hip, `chip` does not."""
    return any(
        part in wanted or part.startswith(wanted) for word in words(node) for part in (word, *_PARTS.split(word))
    )


def test_of(block: Block) -> ast.expr | None:
    """What an `if` or `while` around a statement decides on."""
    return getattr(block.node, "test", None) if block.kind in ("if", "while", "after") else None


def vendor_guarded(at: Site | Write) -> bool:
    """Whether the code is reached on one vendor only.

    An `if` around it, or one before that left, asks for the vendor; or a decorator of its function does; or the file
    leaves at its top; or the function is named for it.
    """
    asked = (test_of(block) for block in blocks(at))
    if any(test is not None and asks_for_vendor(test) for test in asked):
        return True
    return any(_for_one_vendor(scope) for scope in at.scope.outward())


@lru_cache(maxsize=64)
def _for_one_vendor(scope: Scope) -> bool:
    """Whether a scope as a whole is for one vendor, by its name, its decorators, or what a file does at its top."""
    if isinstance(scope.node, ast.Module):
        leaving = (s for s in scope.node.body if isinstance(s, ast.If) and _leaves(s.body[-1]))
        return any(asks_for_vendor(statement.test) for statement in leaving)
    decorators = getattr(scope.node, "decorator_list", ())
    return any(asks_for_vendor(decorator) for decorator in decorators) or _named_for_a_vendor(scope)


def _leaves(statement: ast.stmt) -> bool:
    """Whether the file is not read on: an error, an exit, or a test that skips all of it."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func).rpartition(".")[2] in ("skip", "exit", "importorskip")
    return isinstance(statement, ast.Raise)


def asks_for_vendor(test: ast.AST) -> bool:
    """Whether a test tells vendors apart; `tensor.is_cuda` does not, `current_platform.is_cuda()` does."""
    return mentions(test, _VENDOR_WORDS) or any(_asks_is_cuda(node) for node in ast.walk(test))


def _asks_is_cuda(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id.lower().strip("_") == "is_cuda"
    called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return called.startswith("is_cuda") and "alike" not in called  # ROCm is alike


def _named_for_a_vendor(scope: Scope) -> bool:
    """Whether the function or class is there for one vendor only, by its name; a cuda graph is no sign of it."""
    parts = scope.name.lower().replace("_", ".").split(".")
    return parts[-1] == "cuda" or any(part.startswith(_VENDORS) for part in parts)


def needs_nvidia(source: Source) -> bool:
    """Whether a file is for NVIDIA only: by its name, or because it imports NVIDIA's packages at its top."""
    imported = (s.name for s in source.imports if s.scope.kind == "module" and s.block is None)
    return source.for_another_vendor or any(name.partition(".")[0] in _NVIDIA_PACKAGES for name in imported)


def asks_for_rocm(test: ast.expr) -> int:
    """1 when the test holds on ROCm, -1 when it fails there, 0 when it asks something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return -asks_for_rocm(test.operand)
    if isinstance(test, ast.BoolOp):
        return next((found for found in map(asks_for_rocm, test.values) if found), 0)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and literal(test.comparators[0]) is None:
        asked = _vendor(test.left)
        if isinstance(test.comparators[0], ast.Constant):  # `torch.version.hip is None`
            return -asked if isinstance(test.ops[0], (ast.Is, ast.Eq)) else asked
        return asked
    if isinstance(test, ast.Compare) and len(test.ops) == 1:  # `vendor == "amd"`
        asked = _vendor(test.comparators[0])
        return -asked if isinstance(test.ops[0], (ast.NotEq, ast.NotIn)) else asked
    return _vendor(test)


def _vendor(node: ast.AST) -> int:
    if mentions(node, ROCM_WORDS):
        return 1
    return -1 if mentions(node, _NVIDIA_WORDS) else 0


def blocks(at: Site | Write) -> Iterator[Block]:
    """The blocks around, innermost first."""
    if at.block is not None:
        yield from at.block.outward()


def assigned(source: Source, name: str, scope: Scope) -> Iterator[Write]:
    """The assignments to a plain name in a function."""
    yield from (w for w in source.writes if w.name == name and w.scope is scope and isinstance(w.target, ast.Name))


def nested_calls(node: ast.AST) -> Iterator[ast.Call]:
    """Every call in an expression."""
    yield from (part for part in ast.walk(node) if isinstance(part, ast.Call))


def text_of(node: ast.AST | None, longest: int = 60) -> str:
    """The source of an expression, on one line and not too long."""
    if node is None:
        return ""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def anywhere(source: Source, node: ast.AST) -> Site:
    """A site for a node that was found by walking the whole tree, for hazards that need no surroundings."""
    return Site(node, "", source.scopes[""], None)


def sure_blocks(block: Block | None) -> list[Block]:
    """The blocks that may be skipped at run time, outermost last; the body of a `with` or `try` is always begun."""
    found = [] if block is None else list(block.outward())
    return [b for b in found if b.kind in ("if", "while", "case", "after") or b.branch == "handler"]


def runs_before(first: Site | Write, later: Site | Write) -> bool:
    """Whether `first` has always been run when `later` is, both in one function: it stands above, under no `if` of its own."""
    if first.scope is not later.scope or first.line >= later.line:
        return False
    around = sure_blocks(later.block)
    return all(any(b is o for o in around) for b in sure_blocks(first.block))
