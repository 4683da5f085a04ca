"""Parses an FX graph that torch printed: number of nodes, operators, and the user's lines."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

_SIGNATURE: Final = re.compile(r"^[ \t]*def forward\(self,?(.*)\):", re.MULTILINE)
_INPUT: Final = re.compile(r"(\w+)(?:: \"[^\"]*\"|(?=,|$))")
_NODE: Final = re.compile(r"^\s+(\w+)(?:: (?:\"[^\"]*\"|[\w.]+))? = (.+)$")
_CALL: Final = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)\(")
_FILE: Final = re.compile(r"^\s*# File: (.+?):(\d+) in ")
_NUMBER: Final = re.compile(r"_\d+$")


@dataclass(frozen=True, kw_only=True)
class GraphText:
    """The contents of a printed graph."""

    nodes: int
    inputs: int
    operators: dict[str, int]
    locations: dict[str, str] = field(default_factory=dict)  # name of a node -> file:line


def read_graph(text: str) -> GraphText:
    """Parse a graph as `GraphModule.print_readable` writes it."""
    found = _SIGNATURE.search(text)
    inputs = len(_INPUT.findall(found[1])) if found else 0
    operators: Counter[str] = Counter()
    locations: dict[str, str] = {}
    location, nodes = "", inputs + 1  # the output is a node too
    for line in text.splitlines():
        if file := _FILE.match(line):
            location = f"{file[1]}:{file[2]}"
        elif node := _NODE.match(line):
            value = node[2].partition(";")[0].strip()
            if re.fullmatch(r"[\w.]+", value):
                continue  # an alias of a parameter
            nodes += 1
            name = _operator(value, node[1])
            if name != "getitem":
                operators[name] += 1
            if location:
                locations[node[1]] = location
    return GraphText(nodes=nodes, inputs=inputs, operators=dict(operators), locations=locations)


def _operator(value: str, node: str) -> str:
    """`aten.mul` for torch.ops.aten.mul.Tensor(…), `linear` for torch._C._nn.linear(…), `add` for `add_3 = x + 1`."""
    call = _CALL.match(value)
    if call is None:
        return "getitem" if re.fullmatch(r"\w+\[.*\]", value) else _NUMBER.sub("", node)
    parts = call[1].split(".")
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:  # noqa: PLR2004 - torch.ops.namespace.name
        return ".".join(parts[2:4])
    return parts[-1]
