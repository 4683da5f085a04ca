"""The state of the arguments of an example call: tensors, and Python objects that hold them, such as a KV cache.

`rs.optimize` runs a model many times on one example. A model that writes to its arguments would get other arguments in each run, so
their state is saved once and restored after every run.
"""

import types
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any, Final

import torch

from rocsolid.torchapi.graphs.tensor_checks import write_count
from rocsolid.torchapi.pytree import compared_by_identity, constant_key

_MAX_VALUES: Final = 20_000  # an object that holds more is not an argument of a call, but a whole program


class ArgumentState:
    """Every tensor, container and object that arguments hold, with a copy of its state."""

    def __init__(self, arguments: Any) -> None:
        self._tensors: list[
            tuple[Any, Any, int | None]
        ] = []  # the tensor, a copy, and how often it was written to before
        self._containers: list[
            tuple[Any, Any]
        ] = []  # lists, dictionaries, sets and attributes of objects, each with a copy
        self._written: set[int] = set()  # indices of the tensors that a run was seen to change
        self.changes_seen = False  # whether a run has changed anything
        with torch.no_grad():
            for value in _reachable(arguments):
                if isinstance(value, torch.Tensor):
                    self._tensors.append((value, value.detach().clone(), write_count(value)))
                else:
                    self._containers.append((value, _shallow_copy(value)))

    def written_values(self) -> dict[int, Any]:
        """Return the tensors whose values have changed, by their position."""
        changed = {i: tensor for i, (tensor, saved, _) in enumerate(self._tensors) if not _same(tensor, saved)}
        self._written |= changed.keys()
        self.changes_seen |= bool(changed)
        return changed

    def restore(self) -> None:
        """Restore what was changed. Tensors count as changed if torch counted a write, or if they were once in `written_values()`."""
        for container, saved in self._containers:
            self.changes_seen |= _restore_container(container, saved)
        for index, (tensor, saved, writes) in enumerate(self._tensors):
            if index in self._written or (writes is not None and write_count(tensor) != writes):
                # Torch allows writes to a tensor made in inference mode only in that mode.
                with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                    tensor.data.copy_(saved)
                self.changes_seen = True


def _reachable(arguments: Any) -> Iterator[Any]:
    """Yield tensors, mutable containers, and the attribute dictionaries of objects; not what is inside modules and functions."""
    waiting, seen = deque([arguments]), set[int]()
    while waiting and len(seen) < _MAX_VALUES:
        value = waiting.popleft()
        if id(value) in seen or _is_code(value) or (constant_key(value) is not None and not isinstance(value, set)):
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided and value.device.type != "meta":
                yield value
            continue
        if isinstance(value, (dict, list, set, deque)):
            yield value
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            waiting.extend(value)
        if isinstance(attributes := getattr(value, "__dict__", None), dict):
            waiting.append(attributes)


def _same(tensor: Any, saved: Any) -> bool:
    return tensor.shape == saved.shape and bool(torch.equal(tensor, saved))


def _is_code(value: Any) -> bool:
    """Return whether a value is code rather than data: a module of torch or of Python, a function, a class."""
    return compared_by_identity(value) or isinstance(value, types.ModuleType)


def _shallow_copy(container: Any) -> Any:
    if isinstance(container, dict):
        return dict(container)
    return set(container) if isinstance(container, set) else list(container)


def _restore_container(container: Any, saved: Any) -> bool:
    """Restore a container and return whether it had changed."""
    if isinstance(container, dict):
        if list(container) == list(saved) and all(container[key] is saved[key] for key in saved):
            return False
        base = OrderedDict if isinstance(container, OrderedDict) else dict
        base.clear(container)  # a subclass may forbid it: model outputs of transformers do
        for key, value in saved.items():
            base.__setitem__(container, key, value)
    elif isinstance(container, set):
        if container == saved:
            return False
        container.clear()
        container.update(saved)
    else:
        if len(container) == len(saved) and all(a is b for a, b in zip(container, saved, strict=True)):
            return False
        container.clear()
        container.extend(saved)
    return True
