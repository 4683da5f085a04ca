"""Reads a graph that torch printed: how many nodes, which operators, from which lines."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

_SIGNATURE: Final = re.compile(r"^\s*def forward\(self,?(.*)\):", re.MULTILINE)
_INPUT: Final = re.compile(r"(\w+)(?:: \"[^\"]*\"|(?=,|$))")
_NODE: Final = re.compile(r"^\s+(\w+)(?:: (?:\"[^\"]*\"|[\w.]+))? = (.+)$")
_CALL: Final = re.compile(r"([A-Za-z_][\w.]*)\(")
_FILE: Final = re.compile(r"^\s*# File: (.+?):(\d+) in ")
_NUMBER: Final = re.compile(r"_\d+$")


@dataclass(frozen=True, kw_only=True)
class GraphText:
    """What a printed graph holds."""

    nodes: int
    inputs: int
    operators: dict[str, int]
    places: dict[str, str] = field(default_factory=dict)


def read_graph(text: str) -> GraphText:
    """A graph as `print_readable` writes it."""
    found = _SIGNATURE.search(text)
    inputs = len(_INPUT.findall(found[1])) if found else 0
    operators: Counter[str] = Counter()
    places: dict[str, str] = {}
    place, nodes = "", inputs + 1  # the output is a node too
    for line in text.splitlines():
        if file := _FILE.match(line):
            place = f"{file[1]}:{file[2]}"
        elif node := _NODE.match(line):
            made = node[2].partition(";")[0].strip()
            if re.fullmatch(r"[\w.]+", made):
                continue  # a parameter under another name
            nodes += 1
            name = _operator(made, node[1])
            if name != "getitem":
                operators[name] += 1
            if place:
                places[node[1]] = place
    return GraphText(nodes=nodes, inputs=inputs, operators=dict(operators), places=places)


def _operator(made: str, node: str) -> str:
    """`aten.mul` for torch.ops.aten.mul.Tensor(…), `linear` for torch._C._nn.linear(…), `add` for `add_3 = x + 1`."""
    call = _CALL.match(made)
    if call is None:
        return "getitem" if re.fullmatch(r"\w+\[.*\]", made) else _NUMBER.sub("", node)
    parts = call[1].split(".")
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:  # noqa: PLR2004 - torch.ops.namespace.name
        return ".".join(parts[2:4])
    return parts[-1]
