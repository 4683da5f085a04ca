"""Find Triton kernels in source code, their launches and their autotuning configurations."""

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from rocsolid.model.source import Scope, Site, Source
from rocsolid.rules.source.syntax import argument, keyword, literal

_JIT: Final = frozenset({"triton.jit", "triton.runtime.jit.jit", "triton.runtime.jit", "triton.jit.jit"})
TL: Final = "triton.language."


class Launch(NamedTuple):
    """The integer constants passed to a kernel by a launch or by a `triton.Config`."""

    site: Site
    kernel: str  # empty where it is not known
    values: dict[str, int]

    @property
    def blocks(self) -> dict[str, int]:
        """The block sizes among them, by name."""
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


def launches(source: Source) -> Iterator[Launch]:
    """Every kernel launch and every `triton.Config`, with their literal constants."""
    if "triton" not in source.text:
        return
    for site in source.calls.get("?", ()):
        func = site.call.func
        if isinstance(func, ast.Subscript) and isinstance(func.value, (ast.Name, ast.Attribute)) and site.call.keywords:
            yield Launch(site, source.resolve(func.value), _numbers(site.call.keywords))
    for site in source.calls_to("triton.Config", "triton.runtime.Config"):
        settings = argument(site.call, 0, "kwargs")
        values = _numbers(site.call.keywords)
        if isinstance(settings, ast.Dict):
            values |= {
                str(literal(k)): v
                for k, n in zip(settings.keys, settings.values, strict=True)
                if (v := _int(n)) is not None
            }
        yield Launch(site, _configured_kernel(source, site), values)


def _configured_kernel(source: Source, site: Site) -> str:
    """The kernel whose decorators contain this configuration."""
    for scope in source.scopes.values():
        node = scope.node
        decorators = getattr(node, "decorator_list", ())
        if any(d.lineno <= site.line <= (d.end_lineno or 0) for d in decorators):
            return scope.name
    return ""


def _numbers(keywords: list[ast.keyword]) -> dict[str, int]:
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
