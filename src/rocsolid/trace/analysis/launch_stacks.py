"""Finds the Python lines that launched the kernels with the most time. The trace must contain Python functions."""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from rocsolid.model.trace import DeviceTrace, TraceFile
from rocsolid.trace.analysis.link_launches import link_launches
from rocsolid.trace.columns import Column, EventKind, TraceColumns
from rocsolid.trace.readers.python_frames import Frames

_MAX_KERNELS: Final = 40
_LAUNCHES_PER_KERNEL: Final = 3
# Frames of torch, Triton and AITER: the frame that called them is more useful.
_TORCH_FRAMES: Final = (
    "torch/",
    "triton/",
    "aiter/jit/",
    "<built-in",
    "nn.Module",
    "/torch/",
    "site-packages/torch/",
    "<string>",
)


@dataclass(frozen=True, kw_only=True)
class _Launches:
    """The launches of the longest runs of each kernel."""

    times: dict[tuple[str, str], list[int]]  # the times of the launches, by device and kernel name
    thread: dict[int, str]  # the thread of each launch, by time


@dataclass(kw_only=True)
class LaunchLocations:
    """Searches for the innermost Python frame of each launch that is not a frame of torch."""

    launches: _Launches
    times: Column  # the times of all launches, sorted
    best: dict[int, tuple[bool, bool, int, str]] = field(default_factory=dict)  # the best frame so far, by launch time

    def add(self, frames: Frames) -> None:
        """Search more frames."""
        if not len(self.times):
            return
        first = np.searchsorted(self.times, frames.start, side="left")
        last = np.searchsorted(self.times, frames.end, side="right")
        duration = frames.end - frames.start
        for frame in np.flatnonzero(last > first).tolist():
            name = frames.names[frame]
            in_torch = any(part in name for part in _TORCH_FRAMES)
            for time in self.times[first[frame] : last[frame]].tolist():
                # The lowest rank is best: a frame of the launching thread, not in torch, and the shortest. Threads of the
                # autograd engine have no frames; for them, the frame of the thread that waits for them is used.
                other_thread = self.launches.thread[time] != frames.threads[frame]
                rank = (other_thread, in_torch, int(duration[frame]), name)
                if time not in self.best or rank < self.best[time]:
                    self.best[time] = rank

    def apply(self, file: TraceFile) -> TraceFile:
        """Set the location of each kernel that was launched inside a Python frame."""
        return replace(file, devices=tuple(self._apply(device) for device in file.devices))

    def _apply(self, device: DeviceTrace) -> DeviceTrace:
        rows = []
        for row in device.kernels:
            times = self.launches.times.get((device.device, row.name), [])
            location = next((self.best[time][-1] for time in times if time in self.best), "")
            rows.append(replace(row, location=location or row.location))
        return replace(device, kernels=tuple(rows))


def capture_locations(columns: TraceColumns, file: TraceFile, capture: TraceColumns, launch: Column) -> LaunchLocations:
    """Prepare the search in the trace of a capture. `launch` has the launch call there of each device event, or -1."""
    device, calls = columns.device, capture.calls
    times: dict[tuple[str, str], list[int]] = {}
    thread: dict[int, str] = {}
    name_ids = {name: name_id for name_id, name in enumerate(columns.names)}
    for device_trace in file.devices:
        on_device = (device.device == int(device_trace.device)) & (launch >= 0)
        for row in device_trace.kernels[:_MAX_KERNELS]:
            runs = np.flatnonzero(on_device & (device.name == name_ids[row.name]))[:_LAUNCHES_PER_KERNEL]
            starts = calls.start[launch[runs]].tolist()
            times[device_trace.device, row.name] = starts
            threads = (capture.threads[number] for number in calls.thread[launch[runs]].tolist())
            thread.update(zip(starts, threads, strict=True))
    return LaunchLocations(
        launches=_Launches(times=times, thread=thread), times=np.array(sorted(thread), dtype=np.int64)
    )


def capture_launch_times(
    columns: TraceColumns, capture: TraceColumns, launch: Column
) -> dict[str, tuple[Column, Column]]:
    """Return for each thread of a capture the starts of its launches, sorted, and the device time of their replays."""
    events = np.flatnonzero(launch >= 0)
    events = events[np.argsort(capture.calls.start[launch[events]], kind="stable")]
    start, thread = capture.calls.start[launch[events]], capture.calls.thread[launch[events]]
    time = (columns.device.end - columns.device.start)[events]
    return {
        capture.threads[number]: (start[thread == number], time[thread == number])
        for number in np.unique(thread).tolist()
    }


def launch_locations(columns: TraceColumns, file: TraceFile) -> LaunchLocations:
    """Prepare the search for the kernels with the most time."""
    links = link_launches(columns)
    device, calls = columns.device, columns.calls
    times: dict[tuple[str, str], list[int]] = {}
    thread: dict[int, str] = {}
    name_ids = {name: name_id for name_id, name in enumerate(columns.names)}
    for device_trace in file.devices:
        for row in device_trace.kernels[:_MAX_KERNELS]:
            runs = np.flatnonzero(
                (device.name == name_ids[row.name])
                & (device.device == int(device_trace.device))
                & (device.kind == EventKind.KERNEL)
                & (links.call_row >= 0)
            )
            longest = runs[np.argsort(device.start[runs] - device.end[runs], kind="stable")][:_LAUNCHES_PER_KERNEL]
            call_rows = links.call_row[longest]
            times[device_trace.device, row.name] = calls.start[call_rows].tolist()
            thread.update(
                zip(
                    calls.start[call_rows].tolist(),
                    (columns.threads[thread_id] for thread_id in calls.thread[call_rows].tolist()),
                    strict=True,
                )
            )
    return LaunchLocations(
        launches=_Launches(times=times, thread=thread), times=np.array(sorted(thread), dtype=np.int64)
    )
