"""The short way from a call to its graph: for one spelling of the arguments, everything that must be the same, in C."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from rocsolid.model.bucket import Bucket
from rocsolid.runtime.capture.call import Call
from rocsolid.runtime.capture.entry import Entry
from rocsolid.runtime.capture.reading import reader
from rocsolid.torchapi.graphs.fast_checks import state_check, tensor_check

NO_LENGTHS: Final[Mapping[int, int]] = {}


class Road:
    """Leads calls that look like one call to its entry; with buckets, to the entry for their lengths."""

    def __init__(
        self, call: Call, entry: Entry, static: Sequence[str], buckets: Mapping[str, Sequence[Bucket]]
    ) -> None:
        tensors = [leaf.value for leaf in call.tensors]
        free: dict[int, set[int]] = {}
        for length in call.lengths:
            free.setdefault(length.tensor, set()).add(length.dim)
        self.read = reader(call, static)
        self.fits = tensor_check(tensors, free)
        self.in_state = state_check()
        self.inference = torch.is_inference_mode_enabled()
        self.entry: Entry | None = None if call.lengths else entry
        # What no tensor is stands where buffers of one size alone would not do.
        self.buffers: Sequence[Any] = [None] if call.lengths else entry.statics
        self._dims: list[tuple[int, int, Bucket]] = []
        self._family: dict[tuple[Any, ...], Entry] = {}
        if call.lengths:
            dims = [bucket for leaf in call.tensors for bucket in buckets.get(leaf.path, ())]
            self._dims = [(x.tensor, x.dim, bucket) for x, bucket in zip(call.lengths, dims, strict=True)]
            self.lead_to(call, entry)

    def lead_to(self, call: Call, entry: Entry) -> None:
        """Let calls of these lengths be answered by this entry."""
        self._family[_pattern([length.size for length in call.lengths], [length.length for length in call.lengths])] = (
            entry
        )

    def leads_to(self, entry: Entry) -> bool:
        """Whether calls may end at this entry."""
        return self.entry is entry or (self.entry is None and entry in self._family.values())

    def forget(self, entry: Entry) -> bool:
        """Do not lead there any more; whether the road leads anywhere still."""
        if self.entry is not None:
            return self.entry is not entry
        self._family = {sizes: other for sizes, other in self._family.items() if other is not entry}
        return bool(self._family)

    def by_length(self, tensors: Sequence[Any]) -> tuple[Entry | None, Mapping[int, int]]:
        """The entry for these tensors, which fit, and how long their bucketed dimensions are."""
        lengths = [tensors[number].shape[dim] for number, dim, _ in self._dims]
        sizes = [bucket.fit(length) for length, (_, _, bucket) in zip(lengths, self._dims, strict=True)]
        if None in sizes:
            return None, NO_LENGTHS
        entry = self._family.get(_pattern(sizes, lengths))
        if entry is None:
            return None, NO_LENGTHS
        groups: dict[int, int] = {}
        for length in lengths:
            groups.setdefault(length, len(groups))
        return entry, {group: length for length, group in groups.items()}


def _pattern(sizes: Sequence[int | None], lengths: Sequence[int]) -> tuple[Any, ...]:
    """The sizes, and which lengths are equal."""
    return (*sizes, *(lengths.index(length) for length in lengths))
