"""Reads the code that Inductor generated for a graph: its kernels, how often each is launched, and the lines they come from."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from rocsolid.model.compile_log import CompiledKernel, GraphKind

# Matches: name = async_compile.triton('name', '''…''')  or  async_compile.cpp_pybinding([…], r'''…''')
_DEFINITION: Final = re.compile(
    r"^(\w+) = async_compile\.(\w+)\(((?:[^'\n]|'(?!''))*?)r?'''(.*?)'''", re.DOTALL | re.MULTILINE
)
_HEADER: Final = re.compile(r"# AOT ID: \['\d+_(\w+)'\]")
_ORIGIN_COMMENT: Final = re.compile(
    r"# Topologically Sorted Source Nodes: \[([^][\n]*)\], Original ATen: \[([^][\n]*)\]"
)
_EXTERN: Final = re.compile(r"\b(extern_kernels\.\w+|torch\.ops\.\w+\.\w+(?:\.\w+)?|aten\.\w+(?:\.\w+)?)\(")
# Helpers in the generated code that launch no kernel.
_NO_KERNEL: Final = ("torch.ops.inductor._alloc_from_pool", "torch.ops.inductor._reinterpret_tensor")
_NUMBER: Final = re.compile(r"_\d+$")
_TEMPLATE_DECORATOR: Final = "@triton_heuristics.template"
_TEMPLATE_PREFIX: Final = "triton_tem_"


def graph_kind(source: str) -> GraphKind | None:
    """Return forward, backward or inference, from the header of the generated code; None if it has no such header."""
    found = _HEADER.search(source[:200])
    return GraphKind(found[1]) if found and found[1] in {k.value for k in GraphKind} else None


def read_kernels(source: str, locations: Mapping[str, str] | None = None) -> tuple[CompiledKernel, ...]:
    """Return every kernel in the generated code. `locations` maps the name of a node that Dynamo traced to the user's `file:line`."""
    line_of_node = locations or {}
    defined = {found[1]: found for found in _DEFINITION.finditer(source)}
    body = _DEFINITION.sub("", source)
    launches, comments = _launches(body, defined)
    kernels = []
    for name, found in defined.items():
        nodes, operators = _comment_above(source, found.start()) or comments.get(name) or _from_name(name)
        kernels.append(
            CompiledKernel(
                name=name,
                kind=_kind(found[2], name, found[4]),
                launches=launches.get(name, 0),
                operators=operators,
                locations=_locations(nodes, operators, line_of_node),
                code=found[4].strip("\n"),
            )
        )
    for name in (n for n in launches if n not in defined):
        nodes, operators = comments.get(name, ((), ()))
        kernels.append(
            CompiledKernel(
                name=name,
                kind="extern" if "." in name else "triton",
                launches=launches[name],
                operators=operators,
                locations=_locations(nodes, operators, line_of_node),
            )
        )
    return tuple(kernels)


def _launches(
    body: str, defined: Mapping[str, object]
) -> tuple[Counter[str], dict[str, tuple[tuple[str, ...], tuple[str, ...]]]]:
    """Return how often each kernel is launched, and the nodes and operators in the comment above its first launch."""
    launches: Counter[str] = Counter()
    comments: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    last_comment: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    for line in _call_lines(body):
        if found := _ORIGIN_COMMENT.search(line):
            last_comment = _names(found[1]), _names(found[2])
            continue
        if line.startswith("#"):
            continue
        for name in _called(line, defined):
            launches[name] += 1
            if last_comment:
                comments.setdefault(name, last_comment)
                last_comment = None
    return launches, comments


def _call_lines(body: str) -> Iterator[str]:
    """The lines of the functions that launch kernels: `call`, and one function per graph partition."""
    inside = False
    for line in body.splitlines():
        text = line.strip()
        if text.startswith("def "):
            inside = text.startswith(("def call(", "def partition_"))
        elif line and not line[0].isspace() and not line.startswith("#"):
            inside = False
        elif inside:
            yield text


def _called(line: str, defined: Mapping[str, object]) -> Iterator[str]:
    word = re.match(r"(?:\w+ = )?(\w+)(\.run)?\(", line)
    if word and (word[1] in defined or word[2]):  # launched with .run, but not defined here: a multi-kernel
        yield word[1]
        return
    for name in _EXTERN.findall(line):
        if name not in _NO_KERNEL:
            yield name


def _kind(compiler: str, name: str, code: str) -> str:
    if compiler.startswith("triton"):
        return "template" if name.startswith(_TEMPLATE_PREFIX) or _TEMPLATE_DECORATOR in code else "triton"
    return "cpp" if compiler.startswith(("cpp", "halide")) else compiler


def _comment_above(source: str, start: int) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The nodes and operators in the comment above the definition of a Triton kernel."""
    above = source.rfind("\n\n", 0, start - 1)
    found = _ORIGIN_COMMENT.search(source, max(above, 0), start)
    return (_names(found[1]), _names(found[2])) if found else None


def _from_name(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The operators of a C++ kernel, which are only in its name."""
    found = re.match(r"\w{1,300}?_fused_(\w{1,300}?)_\d+$", name)
    return (), (found[1],) if found else ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _locations(nodes: tuple[str, ...], operators: tuple[str, ...], line_of_node: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's lines that a kernel computes, in order, without duplicates."""
    found = [line_of_node[node] for node in nodes if node in line_of_node]
    if not found and not nodes:
        joined = f"_{'_'.join(o.removeprefix('aten.') for o in operators)}_"
        found = [location for node, location in line_of_node.items() if f"_{_NUMBER.sub('', node)}_" in joined]
    return tuple(dict.fromkeys(found))
