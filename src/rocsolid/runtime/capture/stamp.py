"""Notices, between two replays, that something the graph was captured with has been replaced or moved.

Looked at on every call: that each module, tensor and number is still held where it was, that each tensor still lies where it
lay, that nothing was added to a module, and each module's training flag. All of it runs in C loops over lists made once.
"""

import weakref
from operator import getitem, is_
from typing import Any

from rocsolid.runtime.capture.surroundings import Sight, Slot
from rocsolid.torchapi.graphs.fast_checks import pointer_check
from rocsolid.torchapi.pytree import constant_key

_GROWING = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")


class _Attributes:
    """What a module holds itself, looked up without keeping the module alive."""

    def __init__(self, module: "weakref.ref[Any]") -> None:
        self._module = module

    def __getitem__(self, name: str) -> Any:
        return vars(self._module())[name]


class Stamp:
    """What a graph was captured with."""

    def __init__(self, sight: Sight, owner: dict[str, Any] | None = None) -> None:
        """`owner` is a dictionary that holds the captured function itself; holding it in turn would keep both alive for ever."""
        every = [*sight.modules, *sight.tensors, *sight.constants]
        every += [
            Slot(f"{path}.training".lstrip("."), vars(module), "training", module.training)
            for path, module in sight.training
            if "training" in vars(module)  # a compiled module asks the one inside, which is watched itself
        ]
        slots = [slot for slot in every if slot.holder is not owner]
        home = next((weakref.ref(module) for _, module in sight.training if vars(module) is owner), None)
        slots += [slot._replace(holder=_Attributes(home)) for slot in every if slot.holder is owner and home]
        self._slots = [slot for slot in slots if slot.key is not None]
        self._cells = [slot for slot in slots if slot.key is None]
        self._holders = [slot.holder for slot in self._slots]
        self._keys = [slot.key for slot in self._slots]
        self._expected = [slot.value for slot in self._slots]
        self._tensors = sight.tensors
        self._where = [slot.value.data_ptr() for slot in sight.tensors]
        self._still = pointer_check([slot.value for slot in sight.tensors])
        watched = [(path, vars(module)) for path, module in sight.training if vars(module) is not owner]
        self._grown = [(path, "attributes", inner) for path, inner in watched]
        self._grown += [(path, name.strip("_"), inner[name]) for path, inner in watched for name in _GROWING]
        self._growing = [held for _, _, held in self._grown]
        self._lengths = [len(held) for held in self._growing]
        self._nothing = not (self._slots or self._cells or self._tensors or self._grown)

    def holds(self) -> bool:
        """Whether all is as it was."""
        return self._nothing or self._same() or not self.changes()

    def _same(self) -> bool:
        try:
            return (
                all(map(is_, map(getitem, self._holders, self._keys), self._expected))
                and all(slot.holder.cell_contents is slot.value for slot in self._cells)
                and (not self._where or self._still())
                and list(map(len, self._growing)) == self._lengths
            )
        except (LookupError, ValueError):
            return False

    def changes(self) -> list[str]:
        """What is not as it was, by name. A number that was set to the same value again is no change, and is forgotten."""
        found = [change for slot in (*self._slots, *self._cells) if (change := _change(slot))]
        for slot, pointer in zip(self._tensors, self._where, strict=True):
            if slot.value.data_ptr() != pointer:
                found.append(f"{slot.path} lies elsewhere in memory")
        for (path, what, held), length in zip(self._grown, self._lengths, strict=True):
            if len(held) != length:
                found.append(f"{path or 'the module'} had {length} {what} and has {len(held)}")
        if not found:
            self._expected = [slot.now() for slot in self._slots]
            self._cells = [slot._replace(value=slot.now()) for slot in self._cells]
        return found


def _change(slot: Slot) -> str:
    try:
        now = slot.now()
    except LookupError:
        return f"{slot.path} is gone"
    if now is slot.value:
        return ""
    before_key, now_key = constant_key(slot.value), constant_key(now)
    if before_key is None or now_key is None:
        return f"{slot.path} was replaced"
    return "" if before_key == now_key else f"{slot.path} was {slot.value!r} and is {now!r}"
