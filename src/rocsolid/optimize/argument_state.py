"""The state of the arguments of an example call: tensors, and Python objects that hold them, such as a KV cache.

`rs.optimize` runs a model many times on one example. A model that writes to its arguments would get other arguments in each run, so
their state is saved once and restored after every run.
"""

from collections.abc import Iterable
from typing import Any

import torch

from rocsolid.runtime.capture.reachable_state import collect_reachable
from rocsolid.runtime.capture.state_snapshot import Snapshot, write_back
from rocsolid.torchapi.graphs.replay_checks import write_count


class ArgumentState:
    """Every tensor, container and object that arguments hold, with a copy of its state."""

    def __init__(self, arguments: Any) -> None:
        state = collect_reachable(None, {"arguments": arguments})
        self._python = Snapshot(state)
        tensors = {id(ref.value): ref.value for ref in state.tensors if _can_change(ref.value)}
        with torch.no_grad():  # each tensor, a copy, and how often it was written to before
            self._tensors = [(tensor, tensor.detach().clone(), write_count(tensor)) for tensor in tensors.values()]
        self._written: set[int] = set()  # indices of the tensors that a run was seen to change
        self.changes_seen = False  # whether a run has changed anything

    def written_values(self) -> dict[int, Any]:
        """Return the tensors whose values have changed, by their position."""
        changed = {i: tensor for i, (tensor, saved, _) in enumerate(self._tensors) if not _same(tensor, saved)}
        self._written |= changed.keys()
        self.changes_seen |= bool(changed)
        return changed

    def tensors_at(self, positions: Iterable[int]) -> list[Any]:
        """Return the tensors at these positions."""
        return [self._tensors[position][0] for position in positions]

    def restore(self) -> None:
        """Restore what was changed. Tensors count as changed if torch counted a write, or if they were once in `written_values()`."""
        if not self._python.is_unchanged():
            self._python.restore()
            self.changes_seen = True
        for index, (tensor, saved, writes) in enumerate(self._tensors):
            if index in self._written or (writes is not None and write_count(tensor) != writes):
                write_back(tensor, saved)
                self.changes_seen = True


def _can_change(tensor: Any) -> bool:
    is_weight = isinstance(tensor, torch.nn.Parameter)
    return tensor.layout is torch.strided and tensor.device.type != "meta" and not is_weight


def _same(tensor: Any, saved: Any) -> bool:
    return tensor.shape == saved.shape and bool(torch.equal(tensor, saved))
