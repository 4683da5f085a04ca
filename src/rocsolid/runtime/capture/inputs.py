"""A graph's own input buffers, and how a call's tensors get into them.

The caller's tensors are never adopted: what a graph reads is ours alone. A copy is left out only for a tensor that is the
buffer itself, handed out by `inputs()`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rocsolid.runtime.capture.call import Call, Length, Spec
from rocsolid.torchapi.graphs.batched_copy import copies_into
from rocsolid.torchapi.graphs.memory import reach

Fill = Callable[[Sequence[Any]], None]


def overlaps_itself(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether two elements may share memory, as in an expanded tensor; such memory cannot be copied into as it stands."""
    reach = 0
    for step, size in sorted((step, size) for step, size in zip(stride, shape, strict=True) if size > 1):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False


class Buffer:
    """One input buffer: the tensor that the function sees, and the memory that is copied into."""

    def __init__(self, spec: Spec) -> None:
        pinned = spec.device.type == "cpu" and torch.cuda.is_available()
        self._flat = 0 not in spec.shape and overlaps_itself(spec.shape, spec.stride)
        with torch.inference_mode(mode=False):
            if self._flat:
                self.memory = torch.empty(
                    reach(spec.shape, spec.stride), dtype=spec.dtype, device=spec.device, pin_memory=pinned
                )
                self.tensor = self.memory.as_strided(spec.shape, spec.stride)
            else:
                self.memory = torch.empty_strided(
                    spec.shape, spec.stride, dtype=spec.dtype, device=spec.device, pin_memory=pinned
                )
                self.tensor = self.memory
        self.spec = spec
        self.plain = not self._flat

    def take(self, tensor: Any) -> None:
        """Copy a tensor of the same shape and strides in."""
        source = tensor.as_strided(self.memory.shape, (1,), tensor.storage_offset()) if self._flat else tensor
        self.memory.copy_(source)

    def give_back(self, tensor: Any) -> None:
        """Copy out again, into a caller's tensor that the function has written to."""
        target = tensor.as_strided(self.memory.shape, (1,), tensor.storage_offset()) if self._flat else tensor
        target.copy_(self.memory)


class PaddedBuffer(Buffer):
    """A buffer for tensors of changing length: the rest is filled with the padding value."""

    def __init__(self, spec: Spec, lengths: Sequence[Length]) -> None:
        super().__init__(spec)
        self._dims = [(length.dim, length.size, length.pad) for length in lengths]
        self._last: tuple[int, ...] | None = None
        self._heads: dict[tuple[int, ...], Any] = {}
        self.plain = False

    def head(self, lengths: tuple[int, ...]) -> Any:
        """The part of the buffer that tensors of these lengths go to."""
        found = self._heads.get(lengths)
        if found is None:
            found = self.tensor
            for (dim, _, _), length in zip(self._dims, lengths, strict=True):
                found = found.narrow(dim, 0, length)
            self._heads[lengths] = found
        return found

    def take(self, tensor: Any) -> None:
        """Copy a shorter tensor in, and leave nothing behind it of a longer one before."""
        lengths = tuple(tensor.shape[dim] for dim, _, _ in self._dims)
        if self._last != lengths:
            self._pad(lengths)
            self._last = lengths
        head = self.head(lengths)
        if tensor.data_ptr() != head.data_ptr():
            head.copy_(tensor)

    def _pad(self, lengths: tuple[int, ...]) -> None:
        for (dim, size, pad), length in zip(self._dims, lengths, strict=True):
            if length < size:
                self.tensor.narrow(dim, length, size - length).fill_(pad)

    def give_back(self, tensor: Any) -> None:
        """Copy the part out that the caller's tensor has room for."""
        tensor.copy_(self.head(tuple(tensor.shape[dim] for dim, _, _ in self._dims)))


def buffers_for(call: Call) -> list[Buffer]:
    """A buffer for each tensor of the call, filled with it."""
    made: list[Buffer] = []
    with torch.no_grad():
        for number, (leaf, spec) in enumerate(zip(call.tensors, call.specs, strict=True)):
            lengths = [length for length in call.lengths if length.tensor == number]
            buffer = PaddedBuffer(spec, lengths) if lengths else Buffer(spec)
            buffer.take(leaf.value)
            made.append(buffer)
    return made


def filler(buffers: Sequence[Buffer]) -> Fill:
    """The quickest way to copy a call's tensors into these buffers."""
    statics = [buffer.tensor for buffer in buffers]
    if not buffers:
        return _nothing
    if all(buffer.plain for buffer in buffers):
        return copies_into(statics)
    return _mixed(buffers)


def _nothing(_: Sequence[Any]) -> None:
    pass


def _mixed(buffers: Sequence[Buffer]) -> Fill:
    plain = [number for number, buffer in enumerate(buffers) if buffer.plain]
    others = [(number, buffer) for number, buffer in enumerate(buffers) if not buffer.plain]
    rest = filler([buffers[number] for number in plain])

    def fill(tensors: Sequence[Any]) -> None:
        for number, buffer in others:
            if tensors[number] is not buffer.tensor:
                buffer.take(tensors[number])
        rest([tensors[number] for number in plain])

    return fill
