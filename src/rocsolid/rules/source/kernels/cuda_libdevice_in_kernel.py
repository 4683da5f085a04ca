"""A kernel uses NVIDIA's libdevice, which does not compile for AMD.

## What it does
Reports imports from `triton.language.extra.cuda` whose libdevice functions a kernel calls, and such calls written in full. An import
that is only the fallback of a `try` is not reported.

## Why it matters
Triton stops with "Implicit conversion of CUDA __nv_tanhf device function has been dropped". `triton.language.extra.libdevice` has
the same functions and selects the library of the GPU.

## Example
    import triton
    import triton.language as tl
    from triton.language.extra.cuda import libdevice

    @triton.jit
    def activation(x, out):
        tl.store(out, libdevice.tanh(tl.load(x)))

## Use instead
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    @triton.jit
    def activation(x, out):
        tl.store(out, libdevice.tanh(tl.load(x)))

## When to allow it
When the kernel is used only on NVIDIA, or with Triton before 3.0.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Autofix, Rule, Severity
from rocsolid.model.source import Edit, Site, Source, SourceMatch
from rocsolid.rules.source.syntax import enclosing_blocks
from rocsolid.rules.source.triton import TL, kernels
from rocsolid.rules.source.vendors import match_on_rocm

RULE = Rule(
    code="SRC311",
    name="cuda-libdevice-in-kernel",
    severity=Severity.WARNING,
    message="`{subject}` in a kernel does not compile for AMD",
    why="Triton translates only triton.language.extra.libdevice to the library of the GPU.",
    fix="Remove `.cuda`: {instead}",
    check="rocsolid dryrun --kernels {file} --target gfx942",
    since="0.1",
    autofix=Autofix.SAFE,
    evidence=(
        source_evidence(
            "triton 3.7.1, compiled for gfx942",
            "Implicit conversion of CUDA __nv_tanhf device function has been dropped; use triton.language.extra.<op>.",
        ),
    ),
)
_LIBDEVICE = f"{TL}extra.cuda.libdevice"
_OLD, _NEW = "extra.cuda", "extra"


def check(source: Source) -> Iterator[SourceMatch]:
    """Imports that a kernel uses, and calls with the full name."""
    if _OLD not in source.text or "libdevice" not in source.text:
        return
    names = {scope.name for scope in kernels(source)}
    calls = [site for sites in source.calls.values() for site in sites if site.scope.name in names]
    roots = {node.id for site in calls if isinstance(node := _root(site.call.func), ast.Name)}
    used = [s for s in source.imports if s.name.startswith(_LIBDEVICE) and _local_name(s) in roots]
    for site in {id(s.node): s for s in used if not _is_fallback(s)}.values():
        alone = getattr(site.node, "module", "") == _LIBDEVICE or len(getattr(site.node, "names", ())) == 1
        instead = ast.unparse(site.node) if alone else f"from {TL}{_NEW} import libdevice"
        edit = Edit(kind="replace", text=f"{_OLD}={_NEW}") if alone else None
        yield from match_on_rocm(site, source, _LIBDEVICE, edit=edit, instead=instead.replace(_OLD, _NEW))
    for site in calls:
        text = ast.unparse(site.call.func)
        if site.name.startswith(f"{_LIBDEVICE}.") and _OLD in text:
            edit = Edit(kind="replace", text=f"{_OLD}={_NEW}")
            yield from match_on_rocm(site, source, text, edit=edit, instead=text.replace(_OLD, _NEW))


def _root(node: ast.AST) -> ast.AST:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _local_name(site: Site) -> str:
    """The name that the file uses for an import: `t` for `from ... import tanh as t`."""
    last = site.name.rpartition(".")[2]
    names = [alias for alias in getattr(site.node, "names", ()) if alias.name in (site.name, last)]
    return next((alias.asname or last for alias in names if alias.asname or alias.name == last), "")


def _is_fallback(site: Site) -> bool:
    return any(block.branch == "handler" for block in enclosing_blocks(site))
