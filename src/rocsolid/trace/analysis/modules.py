"""Device time by `nn.Module`, from the Python functions in the trace."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from rocsolid.model.trace import ModuleRow
from rocsolid.trace.columns import Column
from rocsolid.trace.readers.python_frames import Frames

# The number of a layer is left out, so that all layers of one class are one row.
_MODULE: Final = re.compile(r"^nn\.Module: (.+?)(?:_\d+)?$")


@dataclass(kw_only=True)
class ModuleTimes:
    """Collects the frames of modules, and adds up the device time of the work that they launched."""

    launches: dict[str, tuple[Column, Column]]  # by thread: the times of the launches, sorted, and their device time
    frames: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)  # by thread: start, end, module

    def add(self, frames: Frames) -> None:
        """Add the modules among these frames."""
        for number, name in enumerate(frames.names):
            found = _MODULE.match(name) if name.startswith("nn.Module: ") else None
            if found:
                entry = int(frames.start[number]), int(frames.end[number]), found[1]
                self.frames.setdefault(frames.threads[number], []).append(entry)

    def rows(self) -> tuple[ModuleRow, ...]:
        """Return one row per module, the most own time first."""
        sums: dict[str, list[int]] = {}
        for thread, frames in self.frames.items():
            times, device_ns = self.launches.get(thread, (np.zeros(0), np.zeros(0, dtype=np.int64)))
            ids: dict[str, int] = {}
            counted: dict[
                str, Column
            ] = {}  # by module: the launches inside it; a module of its class inside it adds none
            inner = np.full(len(times), -1, dtype=np.int64)
            for start, end, name in sorted(frames, key=lambda frame: frame[0] - frame[1]):  # the longest first
                first, last = np.searchsorted(times, (start, end))
                row = sums.setdefault(name, [0, 0, 0])
                row[0] += 1
                known = counted.setdefault(name, np.zeros(len(times), dtype=np.bool_))[first:last]
                row[1] += int(device_ns[first:last][~known].sum())
                known[:] = True
                inner[first:last] = ids.setdefault(name, len(ids))
            for name, number in ids.items():
                sums[name][2] += int(device_ns[inner == number].sum())
        return _rows(sums)


def add_modules(*tables: Iterable[ModuleRow]) -> tuple[ModuleRow, ...]:
    """Add up the rows of several traces."""
    sums: dict[str, list[int]] = {}
    for row in chain(*tables):
        known = sums.setdefault(row.name, [0, 0, 0])
        known[:] = [known[0] + row.calls, known[1] + row.device_ns, known[2] + row.own_ns]
    return _rows(sums)


def _rows(sums: Mapping[str, Sequence[int]]) -> tuple[ModuleRow, ...]:
    rows = [
        ModuleRow(name=name, calls=calls, device_ns=all_ns, own_ns=own_ns)
        for name, (calls, all_ns, own_ns) in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.own_ns, row.name)))
