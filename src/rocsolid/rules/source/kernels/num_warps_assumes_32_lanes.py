"""A number of warps assumes 32 lanes per warp.

## What it does
Reports `num_warps` of 32 or more in kernel launches and in `triton.Config`, also from the list of a comprehension.

## Why it matters
On AMD's data-centre GPUs, a warp has 64 lanes and a block has at most 1024 threads, so 16 warps are the maximum. A
kernel with 32 warps does not launch there.

## Example
    import triton

    kernel[(64,)](x, BLOCK=4096, num_warps=32)

## Use instead
    import triton

    kernel[(64,)](x, BLOCK=4096, num_warps=16)

## When to allow it
When the configuration is used only on NVIDIA.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch, walk
from rocsolid.rules.source.syntax import keyword, literal
from rocsolid.rules.source.triton import kernel_constants
from rocsolid.rules.source.vendors import match_on_rocm

RULE = Rule(
    code="SRC307",
    name="num-warps-assumes-32-lanes",
    severity=Severity.WARNING,
    message="`{subject}` is 2048 threads or more on AMD's data-centre GPUs; at most 1024 can launch",
    why="{why}",
    fix="Use at most 16 warps on ROCm: {instead}",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(source_evidence("triton 3.7 backends/amd/compiler.py", "warp_size is 64 on gfx9."),),
)
_TOO_MANY_WARPS = 32
_WHY = {
    False: "A warp has 64 lanes there, so 16 warps are the maximum. The launch fails.",
    True: "A warp has 64 lanes there, so 16 warps are the maximum. Autotuning compiles the configuration and then skips it; Triton before 3.4 fails.",
}


def check(source: Source) -> Iterator[SourceMatch]:
    """32 or more warps in a launch, and the first such configuration of each list."""
    if "num_warps" not in source.text or "triton" not in source.text:
        return
    reported: set[int] = set()
    for constants in kernel_constants(source):
        site, warps = constants.site, constants.values.get("num_warps", 0)
        is_config = site.name.endswith("Config")
        instead = f"num_warps=16 if torch.version.hip else {warps}"
        if is_config and warps == 0:
            warps = _warps_from_list(site, source)
            instead = f"[4, 8, 16] if torch.version.hip else [4, 8, 16, {warps}]"
        statement = _statement_line(site, source)
        if warps >= _TOO_MANY_WARPS and not (is_config and (statement in reported or _is_pruned(source))):
            severity = "INFO" if is_config else ""
            at = Site(keyword(site.call, "num_warps") or site.node, site.name, site.scope, site.block)
            yield from match_on_rocm(
                at, source, f"num_warps={warps}", severity=severity, why=_WHY[is_config], instead=instead
            )
            reported.add(statement)


def _is_pruned(source: Source) -> bool:
    """Whether the file removes configurations by their number of warps, or the list is an argument of a function that may."""
    if any(isinstance(n, ast.Compare) and "num_warps" in ast.unparse(n) for n in walk(source.tree)):
        return True
    return "prune" in source.text and any("prune" in s.name for sites in source.calls.values() for s in sites)


def _statement_line(site: Site, source: Source) -> int:
    """The first line of the top-level statement that contains the site, to report a list of configurations once."""
    lines = [s.lineno for s in source.tree.body if s.lineno <= site.line]
    return lines[-1] if lines else 0


def _warps_from_list(site: Site, source: Source) -> int:
    """The largest number in `triton.Config(..., num_warps=w) for w in [8, 16, 32]`, also with a name for the list; else 0."""
    value = keyword(site.call, "num_warps")
    if not isinstance(value, ast.Name):
        return 0
    for node in _comprehensions(source):
        for generator in node.generators if _contains(node, site) else ():
            if isinstance(generator.target, ast.Name) and generator.target.id == value.id and not generator.ifs:
                numbers = [literal(element) for element in _list_elements(generator.iter, source)]
                return max((n for n in numbers if isinstance(n, int)), default=0)
    return 0


@lru_cache(maxsize=2)
def _comprehensions(source: Source) -> tuple[ast.ListComp | ast.GeneratorExp, ...]:
    return tuple(node for node in walk(source.tree) if isinstance(node, (ast.ListComp, ast.GeneratorExp)))


def _contains(node: ast.expr, site: Site) -> bool:
    return node.lineno <= site.line <= (node.end_lineno or 0)


def _list_elements(node: ast.expr, source: Source) -> list[ast.expr]:
    """The elements of a list, also of one that is assigned once in the file; none if a condition selects the list."""
    if isinstance(node, ast.Name):
        values = [a.value for a in source.assignments if a.name == node.id]
        node = values[0] if len(values) == 1 and values[0] is not None else node
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
