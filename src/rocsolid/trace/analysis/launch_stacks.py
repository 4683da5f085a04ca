"""Finds the Python line that launched each of the kernels with the most time, from the Python functions of the trace."""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from rocsolid.model.trace import DeviceTrace, TraceFile
from rocsolid.trace.analysis.link_launches import link_launches
from rocsolid.trace.columns import Column, EventKind, TraceColumns
from rocsolid.trace.readers.python_frames import Frames

_MAX_KERNELS: Final = 40
_LAUNCHES_PER_KERNEL: Final = 3
# Frames of torch itself: the frame that called torch is more useful.
_TORCH_FRAMES: Final = ("torch/", "<built-in", "nn.Module", "/torch/", "site-packages/torch/", "<string>")


@dataclass(frozen=True, kw_only=True)
class _Launches:
    """When the longest runs of each kernel were launched, and by which thread."""

    moments: dict[tuple[str, str], list[int]]  # by device and kernel name
    thread: dict[int, str]  # by moment


@dataclass(kw_only=True)
class LaunchLocations:
    """Searches the frames for the innermost one around each launch that is not a frame of torch."""

    launches: _Launches
    moments: Column  # of all launches, sorted
    best: dict[int, tuple[bool, bool, int, str]] = field(default_factory=dict)  # by moment

    def add(self, frames: Frames) -> None:
        """Search more frames."""
        if not len(self.moments):
            return
        first = np.searchsorted(self.moments, frames.start, side="left")
        last = np.searchsorted(self.moments, frames.end, side="right")
        length = frames.end - frames.start
        for number in np.flatnonzero(last > first).tolist():
            name = frames.names[number]
            in_torch = any(part in name for part in _TORCH_FRAMES)
            for moment in self.moments[first[number] : last[number]].tolist():
                # Preferred: a frame of the launching thread, outside torch, and the shortest. A thread of the autograd
                # engine has no frames; then the frame of the thread that waits for it is used.
                other_thread = self.launches.thread[moment] != frames.threads[number]
                rank = (other_thread, in_torch, int(length[number]), name)
                if moment not in self.best or rank < self.best[moment]:
                    self.best[moment] = rank

    def apply(self, file: TraceFile) -> TraceFile:
        """Set the location of each kernel that was launched inside a Python frame."""
        return replace(file, devices=tuple(self._apply(device) for device in file.devices))

    def _apply(self, device: DeviceTrace) -> DeviceTrace:
        rows = []
        for row in device.kernels:
            moments = self.launches.moments.get((device.device, row.name), [])
            location = next((self.best[moment][-1] for moment in moments if moment in self.best), "")
            rows.append(replace(row, location=location))
        return replace(device, kernels=tuple(rows))


def launch_locations(columns: TraceColumns, file: TraceFile) -> LaunchLocations:
    """A search for the launches of the kernels with the most time."""
    links = link_launches(columns)
    device, calls = columns.device, columns.calls
    moments: dict[tuple[str, str], list[int]] = {}
    thread: dict[int, str] = {}
    name_ids = {name: number for number, name in enumerate(columns.names)}
    for one in file.devices:
        for row in one.kernels[:_MAX_KERNELS]:
            mine = np.flatnonzero(
                (device.name == name_ids[row.name])
                & (device.device == int(one.device))
                & (device.kind == EventKind.KERNEL)
                & (links.call >= 0)
            )
            longest = mine[np.argsort(device.start[mine] - device.end[mine], kind="stable")][:_LAUNCHES_PER_KERNEL]
            launched = links.call[longest]
            moments[one.device, row.name] = calls.start[launched].tolist()
            thread.update(
                zip(
                    calls.start[launched].tolist(),
                    (columns.threads[n] for n in calls.thread[launched].tolist()),
                    strict=True,
                )
            )
    return LaunchLocations(
        launches=_Launches(moments=moments, thread=thread), moments=np.array(sorted(thread), dtype=np.int64)
    )
