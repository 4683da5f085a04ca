"""A compute capability decides without asking for the vendor.

## What it does
Reports comparisons of `torch.cuda.get_device_capability()` with numbers where nothing around asks for ROCm.

## Why it matters
On ROCm the call answers with the number of the gfx name: gfx942 is (9, 4), which passes every test for Hopper, and gfx90a is
(9, 0), which is Hopper's own. The code then takes paths for instructions that are not there.

## Example
    import torch

    if torch.cuda.get_device_capability()[0] >= 9:
        use_hopper_kernels()

## Use instead
    import torch

    if torch.version.hip is None and torch.cuda.get_device_capability()[0] >= 9:
        use_hopper_kernels()

## When to allow it
When both vendors are meant: AMD's (9, 4) passes a test for "at least 8" by luck and may pass rightly.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch
from rocsolid.rules.source.syntax import checks_vendor, is_nvidia_only, is_vendor_specific, match_at

RULE = Rule(
    code="SRC403",
    name="capability-check-assumes-nvidia",
    severity=Severity.WARNING,
    message="a compute capability decides ({subject}), and nothing asks for the vendor",
    why="On ROCm the call answers with the gfx number: gfx942 is (9, 4) and passes for Hopper.",
    fix="Ask torch.version.hip is None as well, or ask for the feature itself.",
    check="rocsolid explain SRC403",
    since="0.1",
    evidence=(
        upstream(
            "torch 2.13 cuda/__init__.py get_device_capability",
            "It answers with the device properties, which HIP fills with the gfx number.",
        ),
    ),
)
_ASKS = ("torch.cuda.get_device_capability",)
_HOPPER_AND_UP = 9
# What ROCm answers with: gfx90a, gfx942, gfx950, then RDNA 1 to 4.
_ANSWERS = frozenset({(9, 0), (9, 4), (9, 5), (10, 1), (10, 3), (11, 0), (11, 5), (12, 0)})


def check(source: Source) -> Iterator[SourceMatch]:
    """Comparisons with the call itself, or with a name that holds its answer, in a function that asks for no vendor."""
    if "get_device_capability" not in source.text or is_nvidia_only(source):
        return
    for site in source.calls_to(*_ASKS):
        if is_vendor_specific(site) or _function_checks_vendor(site):
            continue
        for node in ast.walk(site.scope.node):
            if isinstance(node, ast.Compare) and any(part is site.node for part in ast.walk(node)) and _numbers(node):
                yield match_at(site, ast.unparse(node), uncertain=not _misleads(node))
                break


def _numbers(node: ast.Compare) -> list[int]:
    """The numbers that a capability is compared with; indices are none."""
    found: list[int] = []
    for part in (node.left, *node.comparators):
        if not any(isinstance(n, ast.Call) for n in ast.walk(part)):
            found += [n.value for n in ast.walk(part) if isinstance(n, ast.Constant) and isinstance(n.value, int)]
    return found


def _misleads(node: ast.Compare) -> bool:
    """Whether gfx9 to gfx12 fall on the side of chips they have nothing in common with; "at least 8" they may well pass."""
    numbers = tuple(_numbers(node))
    if isinstance(node.ops[0], ast.Eq) and len(numbers) > 1:
        return numbers in _ANSWERS
    told = isinstance(node.ops[0], (ast.Eq, ast.GtE, ast.Gt, ast.Lt, ast.LtE))
    return told and max(numbers) >= _HOPPER_AND_UP


def _function_checks_vendor(site: Site) -> bool:
    """Whether the function asks for a vendor site_of, or at the top of a file the statement itself."""
    if site.scope.kind != "module":
        return checks_vendor(site.scope.node)
    holding = [s for s in ast.walk(site.scope.node) if isinstance(s, ast.stmt) and _holds(s, site.line)]
    innermost = max(holding, key=lambda s: s.lineno, default=None)
    return innermost is not None and checks_vendor(getattr(innermost, "test", innermost))


def _holds(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or 0)
