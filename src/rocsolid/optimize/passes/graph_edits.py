"""What rewrites of a graph before autograd need: there, nodes are the calls as the user wrote them, and some write to tensors."""

import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate
from torch.nn.functional import linear

from rocsolid.errors import UnsupportedTorchError
from rocsolid.torchapi.dispatch import writes_in_place

_OPERATORS: Final = frozenset({"aten", "prims", "rocsolid"})  # namespaces of operators that accept any strides
_WRITING: Final = frozenset(
    {
        "__setitem__", "delitem", "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow", "irshift", "isub",
        "itruediv", "ixor", "setitem",
    }
)  # fmt: skip
_STRIDED: Final = frozenset(
    {"as_strided", "as_strided_scatter"}
)  # the numbers of the user's code are those of other strides
# Their results may be views, so strides and errors about strides continue there.
_VIEWS: Final = frozenset(
    {
        "chunk", "contiguous", "detach", "dropout", "expand", "expand_as", "flatten", "float", "getitem", "half", "movedim", "narrow",
        "permute", "reshape", "select", "split", "split_with_sizes", "squeeze", "swapaxes", "t", "tensor_split", "to", "transpose",
        "type", "type_as", "unbind", "unflatten", "unsqueeze", "view", "view_as",
    }
)  # fmt: skip


def value(node: Any) -> Any:
    """Return the fake tensor of a node; anything that is not a node as it is."""
    return node.meta.get("example_value") if isinstance(node, Node) else node


def add_call(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """Add a call of a function, or of a method if `target` is its name, and compute its fake result."""
    make = graph.call_method if isinstance(target, str) else graph.call_function
    node = make(target, args, kwargs)
    node.meta["example_value"] = run(node, value)
    return node


def add_operator(graph: Graph, operator: Any, *args: Any, **kwargs: Any) -> Node:
    """Add a call of an operator to a graph after autograd, where the fake results have another name."""
    node = graph.call_function(operator, args, kwargs)
    node.meta["val"] = operator(*(arg.meta["val"] if isinstance(arg, Node) else arg for arg in args), **kwargs)
    return node


def run(node: Node, argument: Callable[[Any], Any]) -> Any:
    """Call what a node calls, with these values of its arguments."""
    args, kwargs = map_aggregate((node.args, node.kwargs), argument)
    if isinstance(node.target, str):
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)


class Layer(NamedTuple):
    """The arguments of a linear layer. The weight of an `is_transposed` one has a column for each result, as in GPT-2."""

    x: Node
    weight: Node
    bias: Node | None
    is_transposed: bool


def linear_layer(node: Node) -> Layer | None:
    """Return the arguments of a call of `linear` or `addmm` whose weight and bias are parameters; None for other nodes."""
    if node.op == "call_function" and node.target is linear:
        given = {**dict(zip(("input", "weight", "bias"), node.args, strict=False)), **node.kwargs}
        layer = Layer(given["input"], given["weight"], given.get("bias"), is_transposed=False)
    elif node.op == "call_function" and node.target is torch.addmm and not node.kwargs:
        bias, x, weight = node.args
        layer = Layer(x, weight, bias, is_transposed=True)
    else:
        return None
    weights = [layer.weight, *([layer.bias] if layer.bias is not None else [])]
    shapes = [value(part).shape for part in weights if isinstance(part, Node) and part.op == "placeholder"]
    is_matrix = len(shapes) == len(weights) and len(shapes[0]) == 2  # noqa: PLR2004 - a vector is no layer
    columns = shapes[0][1 if layer.is_transposed else 0] if is_matrix else 0
    fits = isinstance(columns, int) and all(tuple(shape) == (columns,) for shape in shapes[1:])
    return layer if is_matrix and fits and isinstance(layer.x, Node) and value(node) is not None else None


def name_of(node: Node) -> str:
    """Return the name of the function or method that a node calls."""
    if isinstance(node.target, str):
        return node.target if node.op == "call_method" else ""
    return getattr(node.target, "__name__", "")


def _is_known(node: Node) -> bool:
    """Return whether a node calls a function of torch or Python, or a method, and nothing that the user has defined."""
    if node.op == "call_method":
        return True
    if node.op != "call_function":
        return False
    if _is_operator(node):
        return node.target.namespace in _OPERATORS
    module = getattr(node.target, "__module__", None) or "torch"  # builtin functions may have none
    is_function = isinstance(node.target, types.FunctionType | types.BuiltinFunctionType)
    return is_function and module.partition(".")[0] in ("torch", "_operator", "math")


def _is_operator(node: Node) -> bool:
    return hasattr(node.target, "overloadpacket")


def _may_write(node: Node) -> bool:
    if node.op in ("placeholder", "get_attr", "output"):
        return False
    if not _is_known(node):
        return True
    if _is_operator(node):
        try:
            return writes_in_place(node.target)
        except UnsupportedTorchError:
            return True
    name = name_of(node)
    is_operator = getattr(node.target, "__module__", "") == "_operator"  # `and_` and `or_` write nothing
    in_place = name.endswith("_") and not name.endswith("__") and not is_operator
    return in_place or name in _WRITING or bool(_argument(node, "inplace")) or "out" in node.kwargs


def _argument(node: Node, name: str) -> Any:
    if name in node.kwargs or not isinstance(node.target, types.FunctionType):
        return node.kwargs.get(name)
    names = list(inspect.signature(node.target).parameters)
    return node.args[names.index(name)] if name in names and names.index(name) < len(node.args) else None


def nothing_written(first: Node, last: Node) -> bool:
    """Return whether no node between two nodes of a graph, in any order, can write to a tensor."""
    ends = {first, last}
    between = False
    for node in first.graph.nodes:
        if node in ends:
            if between or first is last:
                return True
            between = True
        elif between and _may_write(node):
            return False
    return False


def constant(node: Node) -> Any:
    """Return the tensor that a node computes from numbers alone, on the CPU; None if it depends on the arguments of the call."""
    computed = _ancestors(node)
    if not all(x.op in ("call_function", "call_method") and _is_known(x) and _is_repeatable(x) for x in computed):
        return None
    if any(_may_write(x) and not computed.isdisjoint(_ancestors(x)) for x in node.graph.nodes):
        return None
    values: dict[Node, Any] = {}
    for x in node.graph.nodes:
        if x in computed:
            args, kwargs = map_aggregate((x.args, x.kwargs), lambda y: values[y] if isinstance(y, Node) else _on_cpu(y))
            values[x] = (
                getattr(args[0], x.target)(*args[1:], **kwargs) if x.op == "call_method" else x.target(*args, **kwargs)
            )
    return (
        values[node] if type(values[node]) is torch.Tensor else None
    )  # fake tensors of a simulated GPU have no elements


def _ancestors(node: Node) -> set[Node]:
    """Return a node and all that it is computed from."""
    found, waiting = {node}, [node]
    while waiting:
        new = set(waiting.pop().all_input_nodes) - found
        found |= new
        waiting += new
    return found


def _is_repeatable(node: Node) -> bool:
    """Return whether a call draws no random numbers and changes no state, as the functions of `torch.vmap` do."""
    return not name_of(node).startswith(
        ("_", "rand", "empty", "new_empty", "bernoulli", "multinomial", "normal", "dropout")
    )


def _on_cpu(argument: Any) -> Any:
    is_device = isinstance(argument, torch.device) or (isinstance(argument, str) and argument.startswith("cuda"))
    return torch.device("cpu") if is_device else argument


def erase_unused(nodes: Iterable[Node]) -> None:
    """Erase nodes whose results nothing uses, and what only they used. `Graph.eliminate_dead_code` would erase writes of the user, too."""
    waiting = dict.fromkeys(nodes)
    while waiting:
        node = next(iter(waiting))
        del waiting[node]
        if not node.users and node.op in ("call_function", "call_method") and not _may_write(node):
            waiting |= dict.fromkeys(node.all_input_nodes)
            node.graph.erase_node(node)


def accepts(node: Node, new: Any) -> bool:
    """Return whether what uses a node works with this fake tensor instead, which has other strides, and none of it is returned."""
    for user in node.users:
        if not _is_known(user) or name_of(user) in _STRIDED:
            return False
        if name_of(user) in _VIEWS and isinstance(new, torch.Tensor | tuple | list):
            try:
                result = run(user, lambda x: new if x is node else value(x))
            except (RuntimeError, TypeError, ValueError, IndexError):
                return False
            if not accepts(user, result):
                return False
    return True
