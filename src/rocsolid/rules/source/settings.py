"""Where source moves a setting of torch's compiler: by assignment, by a patch, or as an option."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from rocsolid.model.source import Site, Source, Write
from rocsolid.rules.source.syntax import argument, keyword, literal

CONFIGS: Final = {
    "torch._inductor.config": "inductor",
    "torch._dynamo.config": "dynamo",
    "torch._functorch.config": "functorch",
    "torch.compiler.config": "compiler",
    "torch.fx.experimental._config": "fx",
}
# Without one of these a file moves no setting; most files have none, and are not looked through.
_SIGNS: Final = ("_inductor", "_dynamo", "_functorch", "compiler", "inductor_config", "dynamo_config", "experimental")
COMPILES: Final = ("torch.compile", "torch.compiler.compile")
# How guides and code bases call these modules, for a piece of source that does not show its imports.
_HABITS: Final = {"inductor_config": "torch._inductor.config", "dynamo_config": "torch._dynamo.config"}


class Move(NamedTuple):
    """One setting moved in source."""

    at: Site | Write
    owner: str
    name: str
    value: ast.expr | None
    how: str  # assigned, patched or option

    @property
    def id(self) -> str:
        """As the catalogue calls it."""
        return f"{self.owner}.{self.name}"

    @property
    def constant(self) -> object:
        """Its value where that is written out, else None."""
        return literal(self.value)


def config_name(name: str) -> tuple[str, str]:
    """Owner and setting of a full name such as `torch._inductor.config.triton.cudagraphs`; two empty texts for others."""
    first, _, rest = name.partition(".")
    full = f"{_HABITS[first]}.{rest}" if first in _HABITS else name
    for module, owner in CONFIGS.items():
        if full.startswith(f"{module}."):
            return owner, full[len(module) + 1 :]
    return "", ""


@lru_cache(maxsize=2)  # the rules ask one after the other about the same file
def moves(source: Source) -> tuple[Move, ...]:
    """Every setting that a file moves."""
    return tuple(_moves(source))


def _moves(source: Source) -> Iterator[Move]:
    if any(word in source.text for word in _SIGNS):
        for write in source.writes:
            owner, name = config_name(write.name)
            if owner and isinstance(write.target, ast.Attribute):
                yield Move(write, owner, name, write.value, "assigned")
        for site in source.methods("patch"):
            owner, name = config_name(site.name)
            if owner and name == "patch":
                yield from _patched(site, owner)
    for site in compiles(source):
        options = keyword(site.call, "options")
        if isinstance(options, ast.Dict):
            yield from (Move(site, "inductor", name, value, "option") for name, value in _items(options))


def _patched(site: Site, owner: str) -> Iterator[Move]:
    first = argument(site.call, 0)
    if isinstance(first, ast.Dict):
        yield from (Move(site, owner, name, value, "patched") for name, value in _items(first))
    elif isinstance(name := literal(first), str):
        yield Move(site, owner, name, argument(site.call, 1), "patched")
    for word in site.call.keywords:
        if word.arg:
            yield Move(site, owner, word.arg, word.value, "patched")


def _items(node: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(name := literal(key), str):
            yield name, value


def compiles(source: Source) -> Iterator[Site]:
    """Every call of torch.compile, as a function or as a decorator with arguments."""
    return source.calls_to(*COMPILES)


def modes(source: Source) -> Iterator[tuple[Site, ast.expr]]:
    """Every `mode=` given to torch.compile."""
    for site in compiles(source):
        mode = keyword(site.call, "mode")
        if mode is not None:
            yield site, mode
