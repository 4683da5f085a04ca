"""A kernel calls a libdevice function that AMD's libdevice does not have.

## What it does
Compares the `libdevice` calls in kernels with the functions that Triton provides for HIP.

## Why it matters
The kernel does not compile on AMD. Triton's libdevice for HIP has about a third of NVIDIA's functions.

## Example
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    @triton.jit
    def cube_root(x, out):
        tl.store(out, libdevice.cbrt(tl.load(x)))

## Use instead
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    @triton.jit
    def cube_root(x, out):
        v = tl.load(x)
        tl.store(out, libdevice.pow(tl.abs(v), 1.0 / 3.0) * tl.where(v < 0, -1.0, 1.0))

## When to allow it
When the kernel is used only on NVIDIA.
"""

from collections.abc import Iterator

from rocsolid.catalog.libdevice import MISSING_ON_HIP
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.triton import kernels
from rocsolid.rules.source.vendors import match_on_rocm

RULE = Rule(
    code="SRC309",
    name="libdevice-function-missing-on-amd",
    severity=Severity.WARNING,
    message="`{subject}` does not exist in AMD's libdevice",
    why="The kernel does not compile on AMD.",
    fix="Use functions that both libraries have, or select the kernel by vendor.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(source_evidence("triton 3.7.1 language/extra/hip/libdevice.py", "The name is not among its functions."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Calls of missing functions in kernels, including through NVIDIA's own module path."""
    if "libdevice" not in source.text:
        return
    names = {scope.name for scope in kernels(source)}
    for function in sorted(MISSING_ON_HIP):
        for site in source.calls.get(function, ()):
            owner = site.name.rpartition(".")[0]
            if owner.endswith("libdevice") and site.scope.name in names:
                yield from match_on_rocm(site, source, f"libdevice.{function}")
