"""Code recognizes GPUs by the names of NVIDIA's models.

## What it does
Reports checks such as `"H100" in torch.cuda.get_device_name()` in code that does not check the vendor.

## Why it matters
The check is never true on an AMD GPU, so it always takes the other branch, which is often the one for old or unknown GPUs: a table
of peak rates has no entry, or a fast kernel is not used.

## Example
    import torch

    peak = 989e12 if "H100" in torch.cuda.get_device_name() else 312e12

## Use instead
    import torch

    name = torch.cuda.get_device_name()
    peak = 989e12 if "H100" in name else 1307e12 if "MI300X" in name else 312e12

## When to allow it
When the other branch is right for AMD GPUs. That is common, so the rule is off by default.
"""

import ast
import re
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch, walk
from rocsolid.rules.source.syntax import literal, source_text
from rocsolid.rules.source.vendors import checks_vendor, match_on_rocm

RULE = Rule(
    code="SRC408",
    name="gpu-model-checked-by-name",
    severity=Severity.INFO,
    message="`{subject}` is never true on AMD GPUs",
    why="Every AMD GPU takes the other branch, which may be the one for old or unknown GPUs.",
    fix="Check for the feature or the amount of memory that the code needs, or add the names of AMD's models.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(
        source_evidence("torch 2.13 cuda/__init__.py get_device_name", "It returns the name that the driver reports."),
    ),
)
_MODEL = re.compile(r"\b(?:nvidia\b.*|(?:[ahlv]|rtx\s?|b|gb|gh|t)\d{1,4}s?)\b", re.IGNORECASE)
_KNOWS_AMD = re.compile(r"\bmi\d{3}|instinct|radeon|\bamd\b", re.IGNORECASE)
_NAME = "torch.cuda.get_device_name"


def check(source: Source) -> Iterator[SourceMatch]:
    """`"H100" in name`, where `name` is the device's name or a variable with it, in a file that names no model of AMD."""
    if "get_device_name" not in source.text:
        return
    sites = [*source.conditions, *source.returns]
    sites += [Site(a.value, "", a.scope, a.block) for a in source.assignments if a.value is not None]
    names = {a.name for a in source.assignments if a.value is not None and _is_device_name(a.value, set(), source)}
    reported: set[int] = set()
    for site in sites:
        checks = [n for n in walk(site.node) if isinstance(n, ast.Compare) and _names_a_model(n, names, source)]
        if checks and _KNOWS_AMD.search(source.text):
            return
        if checks and id(checks[0]) not in reported and not checks_vendor(site.node, source, models=False):
            reported.add(id(checks[0]))
            at = Site(checks[0], "", site.scope, site.block)
            yield from match_on_rocm(at, source, source_text(checks[0]), models=False)


def _names_a_model(node: ast.Compare, names: set[str], source: Source) -> bool:
    model = literal(node.left)
    return (
        isinstance(node.ops[0], ast.In)
        and isinstance(model, str)
        and bool(_MODEL.fullmatch(model.strip()))
        and _is_device_name(node.comparators[0], names, source)
    )


def _is_device_name(node: ast.expr, names: set[str], source: Source) -> bool:
    """Whether the value is the device's name, also in lower or upper case."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "upper"):
        node = node.func.value
    if isinstance(node, ast.Call):
        return source.resolve(node.func) == _NAME
    return isinstance(node, (ast.Name, ast.Attribute)) and source.resolve(node) in names
