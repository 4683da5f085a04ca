"""An FP8 format of NVIDIA, or its largest value, is hard-coded where MI300X has another one.

## What it does
Reports `float8_e4m3fn` as the type of inputs in files that call `torch._scaled_mm`, and the largest value 448 in functions that
also use `float8_e4m3fnuz`, unless the code checks the vendor or the file handles both types.

## Why it matters
The matrix units of gfx942 (MI300X) compute in `float8_e4m3fnuz`, whose largest value is 240. A scaled matrix product of
`float8_e4m3fn` fails there. Values that were scaled to 448 become NaN in `float8_e4m3fnuz`.

## Example
    import torch

    def product(a, b, scale_a, scale_b):
        a8 = (a / scale_a).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
        return torch._scaled_mm(a8, b, scale_a, scale_b)

## Use instead
    import torch

    def product(a, b, scale_a, scale_b):
        mi300 = torch.version.hip and "gfx94" in torch.cuda.get_device_properties(0).gcnArchName
        fp8 = torch.float8_e4m3fnuz if mi300 else torch.float8_e4m3fn
        largest = torch.finfo(fp8).max
        a8 = (a / scale_a).clamp(-largest, largest).to(fp8)
        return torch._scaled_mm(a8, b, scale_a, scale_b)

## When to allow it
When the code never runs on MI300X. Storage in `float8_e4m3fn` that is converted before computing is not reported.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch, walk
from rocsolid.rules.source.syntax import literal, site_of, source_text
from rocsolid.rules.source.vendors import checks_vendor, match_on_rocm

RULE = Rule(
    code="SRC407",
    name="fp8-format-hard-coded",
    severity=Severity.WARNING,
    message="`{subject}` {problem}",
    why="MI300X (gfx942) computes in float8_e4m3fnuz, with 240 as its largest value; float8_e4m3fn goes up to 448.",
    fix="Choose the type by the GPU model, and use torch.finfo(dtype).max instead of 448.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(issue("ROCm/legacy-rocm-build#6019", "fnuz types on gfx942 only, OCP types on gfx950 and gfx12 only."),),
)
_OCP = "torch.float8_e4m3fn"
_PRODUCTS = (
    "torch._scaled_mm",
    "torch._scaled_grouped_mm",
    "torch.nn.functional.scaled_mm",
    "torch.nn.functional.scaled_grouped_mm",
)
_OCP_MAX = 448
_FNUZ_MAX = (224, 240)  # some code stays below the largest value


def check(source: Source) -> Iterator[SourceMatch]:
    """Conversions to e4m3fn in files with scaled matrix products, and 448 in functions that use e4m3fnuz."""
    if "float8_e4m3fn" not in source.text:
        return
    if "fnuz" in source.text:
        if str(_OCP_MAX) in source.text:
            yield from _wrong_maximum(source)
    elif any(source.calls_to(*_PRODUCTS)):
        yield from _converted(source)


def _converted(source: Source) -> Iterator[SourceMatch]:
    """The first conversion to e4m3fn in each function."""
    reported: set[str] = set()
    for site in source.calls.get("to", ()):
        values = [*site.call.args, *(k.value for k in site.call.keywords if k.arg == "dtype")]
        values = [value for value in values if isinstance(value, ast.Attribute)]  # a variable may have another value
        if site.scope.name in reported or not any(source.resolve(v) == _OCP for v in values):
            continue
        reported.add(site.scope.name)
        if not _function_checks_vendor(site, source):
            problem = "is an input type of `torch._scaled_mm` that MI300X does not support"
            yield from match_on_rocm(site, source, _OCP, problem=problem)


def _wrong_maximum(source: Source) -> Iterator[SourceMatch]:
    """The first use of 448 in each function that also uses e4m3fnuz, and no other maximum."""
    for scope in source.scopes.values():
        if scope.kind != "function" or "float8_e4m3fnuz" not in ast.unparse(scope.node):
            continue
        nodes = list(walk(scope.node))
        numbers = {
            literal(node) for node in nodes if isinstance(node, ast.Constant) and not isinstance(node.value, str)
        }
        if _OCP_MAX not in numbers or not numbers.isdisjoint(_FNUZ_MAX) or any(_is_finfo(node) for node in nodes):
            continue
        used = next((node for node in nodes if isinstance(node, (ast.BinOp, ast.Call)) and _limits(node)), None)
        if used is not None:
            site = site_of(source, used)
            yield from match_on_rocm(
                site, source, source_text(used), problem="exceeds 240, the maximum of float8_e4m3fnuz"
            )


def _limits(node: ast.BinOp | ast.Call) -> bool:
    """Whether 448 is the divisor of a scale, or a limit of `clamp`."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Div) and literal(node.right) == _OCP_MAX
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    return called in ("clamp", "clamp_", "clip") and _OCP_MAX in {
        literal(value) for value in (*node.args, *(k.value for k in node.keywords))
    }


def _is_finfo(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "finfo"


def _function_checks_vendor(site: Site, source: Source) -> bool:
    node = site.scope.node if site.scope.kind == "function" else site.node
    return checks_vendor(node, source, models=True)
