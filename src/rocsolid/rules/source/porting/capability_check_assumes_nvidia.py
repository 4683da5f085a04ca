"""Code compares a compute capability without checking the vendor.

## What it does
Reports comparisons of `torch.cuda.get_device_capability()` with numbers when nothing around them checks for ROCm.

## Why it matters
On ROCm, the call returns the number in the gfx name. For gfx942 it returns (9, 4), which is greater than Hopper's
(9, 0), and for gfx90a it returns exactly (9, 0). A check for Hopper is then true, and the code uses instructions that
do not exist on AMD GPUs.

## Example
    import torch

    if torch.cuda.get_device_capability()[0] >= 9:
        use_hopper_kernels()

## Use instead
    import torch

    if torch.version.hip is None and torch.cuda.get_device_capability()[0] >= 9:
        use_hopper_kernels()

## When to allow it
When the check is meant for both vendors. For example, "at least 8" is also true for AMD's (9, 4), and that may be
correct.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch
from rocsolid.rules.source.syntax import checks_vendor, is_nvidia_only, is_vendor_specific, match_at

RULE = Rule(
    code="SRC403",
    name="capability-check-assumes-nvidia",
    severity=Severity.WARNING,
    message="`{subject}` does not check the vendor",
    why="On ROCm, get_device_capability() returns the gfx number: gfx942 returns (9, 4), so a check for Hopper, (9, 0) or higher, is true there.",
    fix="Add `torch.version.hip is None and ...`, or check for the feature itself.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence(
            "torch 2.13 cuda/__init__.py get_device_capability",
            "It returns major and minor of the device properties, which HIP fills with the gfx number.",
        ),
    ),
)
_CALLS = ("torch.cuda.get_device_capability",)
_HOPPER = 9
# What ROCm returns: gfx90a, gfx942, gfx950, then RDNA 1 to 4.
_ROCM_CAPABILITIES = frozenset({(9, 0), (9, 4), (9, 5), (10, 1), (10, 3), (11, 0), (11, 5), (12, 0)})


def check(source: Source) -> Iterator[SourceMatch]:
    """Comparisons with the call, in functions that never check the vendor."""
    if "get_device_capability" not in source.text or is_nvidia_only(source):
        return
    for site in source.calls_to(*_CALLS):
        if is_vendor_specific(site) or _function_checks_vendor(site):
            continue
        for node in ast.walk(site.scope.node):
            if isinstance(node, ast.Compare) and any(part is site.node for part in ast.walk(node)) and _numbers(node):
                yield match_at(site, ast.unparse(node), uncertain=not _is_misleading(node), underline=node)
                break


def _numbers(node: ast.Compare) -> list[int]:
    """The numbers that the capability is compared with, without indices."""
    found: list[int] = []
    for part in (node.left, *node.comparators):
        if not any(isinstance(n, ast.Call) for n in ast.walk(part)):
            found += [n.value for n in ast.walk(part) if isinstance(n, ast.Constant) and isinstance(n.value, int)]
    return found


def _is_misleading(node: ast.Compare) -> bool:
    """Whether the check mistakes gfx9 to gfx12 for NVIDIA GPUs. "At least 8" may be correct for them."""
    numbers = tuple(_numbers(node))
    if isinstance(node.ops[0], ast.Eq) and len(numbers) > 1:
        return numbers in _ROCM_CAPABILITIES
    compares = isinstance(node.ops[0], (ast.Eq, ast.GtE, ast.Gt, ast.Lt, ast.LtE))
    return compares and max(numbers) >= _HOPPER


def _function_checks_vendor(site: Site) -> bool:
    """Whether the function checks the vendor anywhere; at module level, whether the statement does."""
    if site.scope.kind != "module":
        return checks_vendor(site.scope.node)
    enclosing = [s for s in ast.walk(site.scope.node) if isinstance(s, ast.stmt) and _contains_line(s, site.line)]
    innermost = max(enclosing, key=lambda s: s.lineno, default=None)
    return innermost is not None and checks_vendor(getattr(innermost, "test", innermost))


def _contains_line(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or 0)
