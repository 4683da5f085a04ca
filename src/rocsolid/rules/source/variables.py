"""Where source sets environment variables."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from rocsolid.model.source import Site, Source, Write
from rocsolid.rules.source.syntax import argument, literal


class Assigned(NamedTuple):
    """One variable set for this process."""

    at: Site | Write
    name: str
    value: str


def variables_set(source: Source) -> Iterator[Assigned]:
    """`os.environ[name] = ...`, `setdefault`, `putenv`, and `update` with a dict or keywords."""
    for write in source.writes:
        name = literal(write.target.slice) if isinstance(write.target, ast.Subscript) else None
        if write.name == "os.environ" and isinstance(name, str):
            yield Assigned(write, name, str(literal(write.value) or ""))
    for site in source.calls_to("os.environ.setdefault", "os.putenv"):
        if isinstance(name := literal(argument(site.call, 0)), str):
            yield Assigned(site, name, str(literal(argument(site.call, 1)) or ""))
    for site in source.calls_to("os.environ.update"):
        first = argument(site.call, 0)
        if isinstance(first, ast.Dict):
            for key, value in zip(first.keys, first.values, strict=True):
                if isinstance(name := literal(key), str):
                    yield Assigned(site, name, str(literal(value) or ""))
        yield from (Assigned(site, k.arg, str(literal(k.value) or "")) for k in site.call.keywords if k.arg)
