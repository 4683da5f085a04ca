"""Keeps what the runs before a capture would disturb: tensors the function writes to, random numbers, Python values."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rocsolid.runtime.capture.surroundings import Sight, Slot, put_back
from rocsolid.torchapi.graphs.memory import writes_so_far

_SMALL_BYTES: Final = (
    256 * 2**20
)  # buffers of a module up to this much are kept whether or not a write to them was seen


class Versions:
    """Which of some tensors are written to in place. A tensor of inference mode has no counter and counts as written to."""

    def __init__(self, tensors: Iterable[tuple[str, Any]]) -> None:
        self._before = [(path, tensor, writes_so_far(tensor)) for path, tensor in tensors]

    def written(self) -> list[tuple[str, Any]]:
        """Those that have been written to since."""
        return [
            (path, tensor) for path, tensor, before in self._before if before is None or writes_so_far(tensor) != before
        ]


class TensorState:
    """Some tensors' values, to be brought back."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        import torch

        unique = {id(tensor): tensor for tensor in tensors}
        with torch.no_grad():
            self._saved = [(tensor, tensor.detach().clone()) for tensor in unique.values()]

    def restore(self) -> None:
        """Let the tensors hold again what they held."""
        for tensor, saved in self._saved:
            tensor.data.copy_(saved)  # past the version counter: for the user nothing has happened

    def read(self) -> list[Any]:
        """What the tensors hold now, as copies."""
        return [tensor.detach().clone() for tensor, _ in self._saved]


def worth_keeping(sight: Sight, written: Sequence[tuple[str, Any]]) -> list[Any]:
    """Tensors that a run may change: those a write was seen to, and the small ones that are no parameters.

    A kernel from outside torch moves no counter, so not every write is seen.
    """
    import torch

    kept = [tensor for _, tensor in written]
    others = [slot.value for slot in sight.tensors if not isinstance(slot.value, torch.nn.Parameter)]
    if sum(tensor.numel() * tensor.element_size() for tensor in others) <= _SMALL_BYTES:
        kept += others
    return kept


class RandomState:
    """Every generator of random numbers that a run may draw from."""

    def __init__(self, device: Any, generators: Sequence[Any]) -> None:
        import torch

        own = [torch.default_generator]
        if device.type == "cuda":
            own.append(torch.cuda.default_generators[device.index or 0])
        self._generators = list({id(g): g for g in (*own, *generators)}.values())
        self._saved = [generator.get_state() for generator in self._generators]

    def restore(self) -> None:
        """Let every generator go on from where it was."""
        for generator, saved in zip(self._generators, self._saved, strict=True):
            generator.set_state(saved)

    def advanced(self) -> bool:
        """Whether any of them has been drawn from since."""
        import torch

        return any(
            not torch.equal(generator.get_state(), saved)
            for generator, saved in zip(self._generators, self._saved, strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The state from which every run around a capture starts."""

    tensors: TensorState
    random: RandomState
    inputs: TensorState

    def reset(self) -> None:
        """Back to the start."""
        self.tensors.restore()
        self.random.restore()
        self.inputs.restore()


@contextmanager
def kept(sight: Sight, stage: Stage) -> Iterator[None]:
    """Whatever runs inside, in the end tensors, random numbers and Python values are as they are now."""
    bound = [_now(slot) for slot in (*sight.constants, *sight.tensors, *sight.modules)]
    copies = sight.shallow_copies()
    try:
        yield
    finally:
        stage.reset()
        for slot in bound:
            if slot is not None and _is_elsewhere(slot):
                slot.put_back()
        put_back(copies)


@contextmanager
def own_casts() -> Iterator[None]:
    """Inside, autocast casts every weight anew, and what it has cast is used by nobody after.

    It keeps the weights it casts until its outermost block ends. A graph must not read a cast from before, which would be freed
    or grow stale, and nobody must read one that only a replay brings up to date.
    """
    import torch

    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


def _now(slot: Slot) -> Slot | None:
    try:
        return slot._replace(value=slot.now())
    except LookupError:
        return None


def _is_elsewhere(slot: Slot) -> bool:
    try:
        return slot.now() is not slot.value
    except LookupError:
        return True
