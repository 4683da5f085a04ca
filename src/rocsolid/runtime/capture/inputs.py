"""The static input buffers of a graph, and how a call's tensors are copied into them.

A graph never reads the caller's tensors. A copy is skipped only for a tensor that is the buffer itself, from `Captured.inputs()`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rocsolid.runtime.capture.call import BucketedDim, Call, TensorSpec
from rocsolid.torchapi.graphs.batched_copy import make_batched_copy
from rocsolid.torchapi.graphs.replay_checks import element_span

CopyIn = Callable[[Sequence[Any]], None]


def overlaps_itself(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether two elements may share memory, as in an expanded tensor. Such a tensor cannot be copied into."""
    last_offset = 0  # of the elements in the dimensions seen so far
    for step, size in sorted((step, size) for step, size in zip(stride, shape, strict=True) if size > 1):
        if step <= last_offset:
            return True
        last_offset += step * (size - 1)
    return False


class Buffer:
    """One input buffer: the tensor that the function gets, and its memory, which a call's tensor is copied into.

    Where elements overlap, as in an expanded tensor, the memory is copied as one flat row.
    """

    def __init__(self, spec: TensorSpec) -> None:
        pinned = spec.device.type == "cpu" and torch.cuda.is_available()
        self._overlaps = 0 not in spec.shape and overlaps_itself(spec.shape, spec.stride)
        with torch.inference_mode(mode=False):
            if self._overlaps:
                self.memory = torch.empty(
                    element_span(spec.shape, spec.stride), dtype=spec.dtype, device=spec.device, pin_memory=pinned
                )
                self.tensor = self.memory.as_strided(spec.shape, spec.stride)
            else:
                self.memory = torch.empty_strided(
                    spec.shape, spec.stride, dtype=spec.dtype, device=spec.device, pin_memory=pinned
                )
                self.tensor = self.memory
        self.spec = spec
        self.plain = not self._overlaps  # a tensor of the same shape and strides can be copied in directly

    def copy_in(self, tensor: Any) -> None:
        """Copy a tensor of the same shape and strides in."""
        source = tensor.as_strided(self.memory.shape, (1,), tensor.storage_offset()) if self._overlaps else tensor
        self.memory.copy_(source)

    def copy_back(self, tensor: Any) -> None:
        """Copy the buffer back into a caller's tensor that the function has written to."""
        target = tensor.as_strided(self.memory.shape, (1,), tensor.storage_offset()) if self._overlaps else tensor
        target.copy_(self.memory)


class PaddedBuffer(Buffer):
    """A buffer for tensors of changing length; the rest is filled with the padding value."""

    def __init__(self, spec: TensorSpec, bucketed: Sequence[BucketedDim]) -> None:
        super().__init__(spec)
        self._dims = [(dim.dim, dim.size, dim.pad) for dim in bucketed]
        self._last_lengths: tuple[int, ...] | None = None
        self._lent = False
        self._unpadded: dict[tuple[int, ...], Any] = {}
        self.plain = False

    def unpadded(self, lengths: tuple[int, ...]) -> Any:
        """Return the part of the buffer that holds tensors of these lengths."""
        view = self._unpadded.get(lengths)
        if view is None:
            view = self.tensor
            for (dim, _, _), length in zip(self._dims, lengths, strict=True):
                view = view.narrow(dim, 0, length)
            self._unpadded[lengths] = view
        return view

    def lend(self, lengths: tuple[int, ...]) -> Any:
        """Return this part for the caller to write into, at any time: from now on every call pads the rest again."""
        self._lent = True
        return self.unpadded(lengths)

    def copy_in(self, tensor: Any) -> None:
        """Copy a tensor in. When the lengths have changed, the rest of the buffer is filled with padding first."""
        lengths = tuple(tensor.shape[dim] for dim, _, _ in self._dims)
        if self._lent or self._last_lengths != lengths:
            self._pad(lengths)
            self._last_lengths = lengths
        target = self.unpadded(lengths)
        if tensor.data_ptr() != target.data_ptr():
            target.copy_(tensor)

    def _pad(self, lengths: tuple[int, ...]) -> None:
        for (dim, size, pad), length in zip(self._dims, lengths, strict=True):
            if length < size:
                self.tensor.narrow(dim, length, size - length).fill_(pad)

    def copy_back(self, tensor: Any) -> None:
        """Copy the unpadded part back into the caller's tensor."""
        tensor.copy_(self.unpadded(tuple(tensor.shape[dim] for dim, _, _ in self._dims)))


def make_buffers(call: Call) -> list[Buffer]:
    """Return a buffer for each tensor of the call, with a copy of the tensor in it."""
    buffers: list[Buffer] = []
    with torch.no_grad():
        for index, (leaf, spec) in enumerate(zip(call.tensors, call.specs, strict=True)):
            bucketed = [dim for dim in call.bucketed if dim.tensor == index]
            buffer = PaddedBuffer(spec, bucketed) if bucketed else Buffer(spec)
            buffer.copy_in(leaf.value)
            buffers.append(buffer)
    return buffers


def make_copy_in(buffers: Sequence[Buffer]) -> CopyIn:
    """Return the fastest function that copies a call's tensors into these buffers."""
    static_inputs = [buffer.tensor for buffer in buffers]
    if not buffers:
        return _copy_nothing
    if all(buffer.plain for buffer in buffers):
        return make_batched_copy(static_inputs)
    return _copy_in_mixed(buffers)


def _copy_nothing(_: Sequence[Any]) -> None:
    pass


def _copy_in_mixed(buffers: Sequence[Buffer]) -> CopyIn:
    """Copy plain buffers together, and the others one by one."""
    plain = [index for index, buffer in enumerate(buffers) if buffer.plain]
    others = [(index, buffer) for index, buffer in enumerate(buffers) if not buffer.plain]
    copy_plain = make_copy_in([buffers[index] for index in plain])

    def copy_in(tensors: Sequence[Any]) -> None:
        for index, buffer in others:
            if tensors[index] is not buffer.tensor:
                buffer.copy_in(tensors[index])
        copy_plain([tensors[index] for index in plain])

    return copy_in
