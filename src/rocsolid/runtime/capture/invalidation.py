"""Detects between two replays that something the graph was captured with was replaced, moved or changed.

Checked on every call: each module, tensor and constant is still the same object, each tensor still has its address, no module
gained or lost attributes or hooks, and each module's training flag. All of it runs in C loops over lists made once.
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
            in vars(module)  # a compiled module has the flag of the module inside, which is watched itself
        ]
        watched = [ref for ref in references if ref.holder is not owner]
        home = next((weakref.ref(module) for _, module in state.named_modules if vars(module) is owner), None)
        watched += [ref._replace(holder=_WeakAttributes(home)) for ref in references if ref.holder is owner and home]
        self._entries = [ref for ref in watched if ref.key is not None]
        self._cells = [ref for ref in watched if ref.key is None]
        self._holders = [ref.holder for ref in self._entries]
        self._keys = [ref.key for ref in self._entries]
        self._expected = [ref.value for ref in self._entries]
        self._tensors = state.tensors
        self._addresses = [ref.value.data_ptr() for ref in state.tensors]
        self._same_addresses = _address_check([ref.value for ref in state.tensors])
        modules = [(path, vars(module)) for path, module in state.named_modules if vars(module) is not owner]
        self._sized = [(path, "attributes", attributes) for path, attributes in modules]
        self._sized += [
            (path, name.strip("_").replace("_", " "), attributes[name])
            for path, attributes in modules
            for name in _MODULE_DICTS
        ]
        self._dicts = [held for _, _, held in self._sized]
        self._lengths = [len(held) for held in self._dicts]
        self._empty = not (self._entries or self._cells or self._tensors or self._sized)

    def is_unchanged(self) -> bool:
        """Whether the graph is still valid."""
        return self._empty or self._identical() or not self.changes()

    def _identical(self) -> bool:
        try:
            return (
                all(map(is_, map(getitem, self._holders, self._keys), self._expected))
                and all(ref.holder.cell_contents is ref.value for ref in self._cells)
                and (not self._addresses or self._same_addresses())
                and list(map(len, self._dicts)) == self._lengths
            )
        except (LookupError, ValueError):
            return False

    def changes(self) -> list[str]:
        """What has changed, one phrase each. A constant that was set to an equal value is not a change."""
        found = [change for ref in (*self._entries, *self._cells) if (change := _change(ref))]
        for ref, address in zip(self._tensors, self._addresses, strict=True):
            if ref.value.data_ptr() != address:
                found.append(f"{_described(ref)} moved to a new address")
        for (path, what, held), length in zip(self._sized, self._lengths, strict=True):
            if len(held) != length:
                name = f"module `{path}`" if path else "the module"
                found.append(f"number of {what} of {name} changed from {length} to {len(held)}")
        if not found:
            self._expected = [ref.current() for ref in self._entries]
            self._cells = [ref._replace(value=ref.current()) for ref in self._cells]
        return found


def _address_check(tensors: Sequence[Any]) -> Callable[[], bool]:
    """A function that tells whether every tensor still has the address it has now."""
    held = list(tensors)
    address = torch.Tensor.data_ptr
    addresses = [address(tensor) for tensor in held]
    on_gpu = held and all(tensor.device.type == "cuda" for tensor in held)
    equal = address_comparison() if on_gpu else None
    if equal is not None:
        compare, indices = equal, list(range(len(held)))
        return lambda: bool(compare(held, addresses, indices))
    return lambda: list(map(address, held)) == addresses


def _change(ref: Reference) -> str:
    try:
        now = ref.current()
    except LookupError:
        return f"{_described(ref)} was deleted"
    if now is ref.value:
        return ""
    before_key, now_key = constant_key(ref.value), constant_key(now)
    if before_key is None or now_key is None:
        return f"{_described(ref)} was replaced"
    return "" if before_key == now_key else f"`{ref.path}` changed from {ref.value!r} to {now!r}"


def _described(ref: Reference) -> str:
    if isinstance(ref.value, torch.nn.Parameter):
        return f"parameter `{ref.path}`"
    if isinstance(ref.value, torch.Tensor):
        return f"tensor `{ref.path}`"
    return f"module `{ref.path}`" if isinstance(ref.value, torch.nn.Module) else f"`{ref.path}`"
