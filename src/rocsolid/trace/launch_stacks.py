"""The line of Python that launched a kernel, from a second pass over the stacks; on request, for the hottest kernels."""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from rocsolid.model.trace import DeviceTrace, TraceFile
from rocsolid.trace.columns import Column, Columns, Kind
from rocsolid.trace.link_launches import link
from rocsolid.trace.python_frames import Frames

_KERNELS: Final = 40
# Frames of torch itself say less than the frame that called it.
_INSIDE: Final = ("torch/", "<built-in", "nn.Module", "/torch/", "site-packages/torch/", "<string>")


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """By device and kernel, when its longest runs were launched; and of each such moment the thread."""

    moments: dict[tuple[str, str], list[int]]
    thread: dict[int, str]


@dataclass(kw_only=True)
class Places:
    """Looks, frame by frame, for the innermost around each launch that is not torch's own."""

    wanted: _Wanted
    sought: Column
    best: dict[int, tuple[bool, bool, int, str]] = field(default_factory=dict)

    def take(self, frames: Frames) -> None:
        """Some more frames."""
        if not len(self.sought):
            return
        first = np.searchsorted(self.sought, frames.start, side="left")
        last = np.searchsorted(self.sought, frames.end, side="right")
        length = frames.end - frames.start
        for number in np.flatnonzero(last > first).tolist():
            name = frames.names[number]
            inside = any(part in name for part in _INSIDE)
            for moment in self.sought[first[number] : last[number]].tolist():
                # The best is of the launching thread, outside torch, and the shortest. A thread of the autograd engine
                # has no frames of its own: what it launches is on account of whoever waits for it.
                other = self.wanted.thread[moment] != frames.threads[number]
                rank = (other, inside, int(length[number]), name)
                if moment not in self.best or rank < self.best[moment]:
                    self.best[moment] = rank

    def answers(self, given: TraceFile) -> TraceFile:
        """The answers with a place for each hot kernel whose launch has a Python stack around it."""
        return replace(given, devices=tuple(self._placed(device) for device in given.devices))

    def _placed(self, device: DeviceTrace) -> DeviceTrace:
        rows = []
        for row in device.kernels:
            moments = self.wanted.moments.get((device.device, row.name), [])
            place = next((self.best[moment][-1] for moment in moments if moment in self.best), "")
            rows.append(replace(row, place=place))
        return replace(device, kernels=tuple(rows))


def places(columns: Columns, answers: TraceFile) -> Places:
    """Ready to look for the launches of the hottest kernels."""
    links = link(columns)
    device, calls = columns.device, columns.calls
    moments: dict[tuple[str, str], list[int]] = {}
    thread: dict[int, str] = {}
    names = {name: number for number, name in enumerate(columns.names)}
    for one in answers.devices:
        for row in one.kernels[:_KERNELS]:
            mine = np.flatnonzero(
                (device.name == names[row.name])
                & (device.device == int(one.device))
                & (device.kind == Kind.KERNEL)
                & (links.call >= 0)
            )
            longest = mine[np.argsort(device.start[mine] - device.end[mine], kind="stable")][:3]
            launched = links.call[longest]
            moments[one.device, row.name] = calls.start[launched].tolist()
            thread.update(
                zip(
                    calls.start[launched].tolist(),
                    (columns.threads[n] for n in calls.thread[launched].tolist()),
                    strict=True,
                )
            )
    sought = np.array(sorted(thread), dtype=np.int64)
    return Places(wanted=_Wanted(moments=moments, thread=thread), sought=sought)
