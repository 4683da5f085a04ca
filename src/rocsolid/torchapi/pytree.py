"""Container types that were registered with torch, such as the outputs of a model hub's classes."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rocsolid.torchapi.private_api import door

_LEAVES = door("torch.utils._pytree", "tree_leaves", "2.2..")
_NODES = door("torch.utils._pytree", "SUPPORTED_NODES", "2.2..")


class Registered(NamedTuple):
    """How one registered type is taken apart and put together."""

    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    unflatten: Callable[[Sequence[Any], Any], Any]


def registered(kind: type) -> Registered | None:
    """The two functions that somebody registered for exactly this type."""
    node = _NODES.reach().get(kind)
    return Registered(node.flatten_fn, node.unflatten_fn) if node is not None else None


def leaves(value: Any) -> list[Any]:
    """Everything in a value that is no registered container."""
    return list(_LEAVES.reach()(value))
