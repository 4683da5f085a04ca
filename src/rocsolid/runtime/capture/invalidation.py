"""Detects whether something that the graph was captured with has since been replaced, moved or changed.

Every call checks that each module, tensor and constant is still the same object, that each tensor still has its address, that no
module gained or lost attributes or hooks, and that no training flag changed. The checks are C loops over lists that are made once.
"""

import weakref
from collections.abc import Callable, Sequence
from operator import getitem, is_
from typing import Any

import torch

from rocsolid.runtime.capture.reachable_state import ReachableState, Reference
from rocsolid.torchapi.graphs.tensor_checks import address_comparison
from rocsolid.torchapi.pytree import constant_key

_MODULE_DICTS = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")


class _WeakAttributes:
    """The attributes of a module, without keeping the module alive."""

    def __init__(self, module: "weakref.ref[Any]") -> None:
        self._module = module

    def __getitem__(self, name: str) -> Any:
        try:
            return vars(self._module())[name]
        except TypeError as deleted:  # the module is None
            raise LookupError(name) from deleted


class CapturedState:
    """The reachable state that a graph was captured with."""

    def __init__(self, state: ReachableState, owner: dict[str, Any] | None = None) -> None:
        """`owner` is a dictionary that holds the captured function itself. It is not referenced: that would be a cycle."""
        references = [*state.modules, *state.tensors, *state.constants]
        references += [
            Reference(f"{path}.training".lstrip("."), vars(module), "training", module.training)
            for path, module in state.named_modules
            if "training"
            in vars(module)  # a compiled module uses the flag of the module inside, which is also in the list
        ]
        watched = [ref for ref in references if ref.holder is not owner]
        owner_module = next((weakref.ref(module) for _, module in state.named_modules if vars(module) is owner), None)
        if owner_module is not None:
            weak_attributes = _WeakAttributes(owner_module)
            watched += [ref._replace(holder=weak_attributes) for ref in references if ref.holder is owner]
        self._entries = [ref for ref in watched if ref.key is not None]
        self._cells = [ref for ref in watched if ref.key is None]
        self._holders = [ref.holder for ref in self._entries]
        self._keys = [ref.key for ref in self._entries]
        self._expected = [ref.value for ref in self._entries]
        self._tensors = state.tensors
        self._addresses = [ref.value.data_ptr() for ref in state.tensors]
        self._addresses_unchanged = _address_check([ref.value for ref in state.tensors])
        modules = [(path, vars(module)) for path, module in state.named_modules if vars(module) is not owner]
        self._sized = [(path, "attributes", attributes) for path, attributes in modules]
        self._sized += [
            (path, name.strip("_").replace("_", " "), attributes[name])
            for path, attributes in modules
            for name in _MODULE_DICTS
        ]
        self._dicts = [dictionary for _, _, dictionary in self._sized]
        self._lengths = [len(dictionary) for dictionary in self._dicts]
        self._empty = not (self._entries or self._cells or self._tensors or self._sized)

    def is_unchanged(self) -> bool:
        """Return whether the graph is still valid."""
        return self._empty or self._identical() or not self.changes()

    def _identical(self) -> bool:
        try:
            return (
                all(map(is_, map(getitem, self._holders, self._keys), self._expected))
                and all(ref.holder.cell_contents is ref.value for ref in self._cells)
                and (not self._addresses or self._addresses_unchanged())
                and list(map(len, self._dicts)) == self._lengths
            )
        except (LookupError, ValueError):
            return False

    def changes(self) -> list[str]:
        """Return a phrase for each change. A constant that was set to an equal value is not a change."""
        changes = [change for ref in (*self._entries, *self._cells) if (change := _change(ref))]
        for ref, address in zip(self._tensors, self._addresses, strict=True):
            if ref.value.data_ptr() != address:
                changes.append(f"{_kind_and_path(ref)} moved to a new address")
        for (path, kind, dictionary), length in zip(self._sized, self._lengths, strict=True):
            if len(dictionary) != length:
                name = f"module `{path}`" if path else "the module"
                changes.append(f"number of {kind} of {name} changed from {length} to {len(dictionary)}")
        if not changes:
            self._expected = [ref.current() for ref in self._entries]
            self._cells = [ref._replace(value=ref.current()) for ref in self._cells]
        return changes


def _address_check(tensors: Sequence[Any]) -> Callable[[], bool]:
    """Return a function that tells whether every tensor still has its present address."""
    watched = list(tensors)
    address = torch.Tensor.data_ptr
    addresses = [address(tensor) for tensor in watched]
    on_gpu = watched and all(tensor.device.type == "cuda" for tensor in watched)
    equal = address_comparison() if on_gpu else None
    if equal is not None:
        compare, indices = equal, list(range(len(watched)))
        return lambda: bool(compare(watched, addresses, indices))
    return lambda: list(map(address, watched)) == addresses


def _change(ref: Reference) -> str:
    """Return how the value of a reference has changed; empty when it has not."""
    try:
        now = ref.current()
    except LookupError:
        return f"{_kind_and_path(ref)} was deleted"
    if now is ref.value:
        return ""
    before_key, now_key = constant_key(ref.value), constant_key(now)
    if before_key is None or now_key is None:
        return f"{_kind_and_path(ref)} was replaced"
    return "" if before_key == now_key else f"`{ref.path}` changed from {ref.value!r} to {now!r}"


def _kind_and_path(ref: Reference) -> str:
    if isinstance(ref.value, torch.nn.Parameter):
        return f"parameter `{ref.path}`"
    if isinstance(ref.value, torch.Tensor):
        return f"tensor `{ref.path}`"
    return f"module `{ref.path}`" if isinstance(ref.value, torch.nn.Module) else f"`{ref.path}`"
