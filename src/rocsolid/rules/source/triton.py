"""Find Triton kernels in source code, and the constants that launches and autotuning configurations pass to them."""

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from rocsolid.model.source import Scope, Site, Source
from rocsolid.rules.source.syntax import argument, keyword, literal

_JIT: Final = frozenset({"triton.jit", "triton.runtime.jit.jit", "triton.runtime.jit", "triton.jit.jit"})
TL: Final = "triton.language."
# A launch calls a subscript, `kernel[grid](...)`, so its function has no name of its own.
_UNNAMED_FUNCTION: Final = "?"


class KernelConstants(NamedTuple):
    """The integer constants passed to a kernel by a launch or by a `triton.Config`."""

    site: Site
    kernel: str  # empty if it is not known
    values: dict[str, int]

    @property
    def blocks(self) -> dict[str, int]:
        """The block sizes among these constants, by name."""
        return {name: value for name, value in self.values.items() if name.upper().startswith("BLOCK")}


def kernels(source: Source) -> Iterator[Scope]:
    """The functions in a file that are Triton kernels."""
    if "triton" in source.text:
        yield from (s for s in source.scopes.values() if not _JIT.isdisjoint(s.decorators))


def kernel_calls(source: Source, *names: str) -> Iterator[Site]:
    """Calls of these `triton.language` functions inside kernels."""
    if "triton" not in source.text:
        return
    for site in source.calls_to(*(f"{TL}{name}" for name in names)):
        if not _JIT.isdisjoint(site.scope.decorators):
            yield site


def kernel_constants(source: Source) -> Iterator[KernelConstants]:
    """The literal constants of every kernel launch and every `triton.Config`."""
    if "triton" not in source.text:
        return
    for site in source.calls.get(_UNNAMED_FUNCTION, ()):
        func = site.call.func
        if isinstance(func, ast.Subscript) and isinstance(func.value, (ast.Name, ast.Attribute)) and site.call.keywords:
            yield KernelConstants(site, source.resolve(func.value), _int_constants(site.call.keywords))
    for site in source.calls_to("triton.Config", "triton.runtime.Config"):
        config = argument(site.call, 0, "kwargs")
        values = _int_constants(site.call.keywords)
        if isinstance(config, ast.Dict):
            values |= {
                str(literal(key)): number
                for key, value in zip(config.keys, config.values, strict=True)
                if (number := _int(value)) is not None
            }
        yield KernelConstants(site, _configured_kernel(source, site), values)


def _configured_kernel(source: Source, site: Site) -> str:
    """The kernel whose decorators contain this configuration."""
    for scope in source.scopes.values():
        decorators = getattr(scope.node, "decorator_list", ())
        if any(d.lineno <= site.line <= (d.end_lineno or 0) for d in decorators):
            return scope.name
    return ""


def _int_constants(keywords: list[ast.keyword]) -> dict[str, int]:
    return {k.arg: value for k in keywords if k.arg and (value := _int(k.value)) is not None}


def _int(node: ast.AST) -> int | None:
    value = literal(node)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def uses_dot(source: Source, kernel: str) -> bool:
    """Whether a kernel of this file calls `tl.dot`."""
    return any(site.scope.name == kernel for site in kernel_calls(source, "dot", "dot_scaled"))


def dtype_argument(call: ast.Call, position: int) -> ast.expr | None:
    """The dtype argument of `tl.zeros` or `tl.full`."""
    return keyword(call, "dtype") or argument(call, position)
