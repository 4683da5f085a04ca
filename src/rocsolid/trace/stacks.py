"""The line of Python that launched a kernel, from a second pass over the stacks; on request, for the hottest kernels."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw, Struct

from rocsolid.model.trace import DeviceTrace, TraceFile
from rocsolid.trace.bytestream import ByteStream
from rocsolid.trace.columns import Column, Columns, Kind
from rocsolid.trace.layout import find_events, last_border, sniff
from rocsolid.trace.linking import link
from rocsolid.trace.times import durations, nanoseconds

_KERNELS: Final = 40
# Frames of torch itself say less than the frame that called it.
_INSIDE: Final = ("torch/", "<built-in", "nn.Module", "/torch/", "site-packages/torch/", "<string>")
_HEAD: Final = 1 << 20


class Frame(Struct, gc=False):
    """A Python function, as the profiler saw it; everything else in the trace decodes to one without a category."""

    ts: Raw = Raw(b"")
    dur: int | float | None = None
    name: str = ""
    cat: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None


_DECODER: Final = msgspec.json.Decoder(list[Frame])


def with_places(file: Path, columns: Columns, answers: TraceFile) -> TraceFile:
    """The answers with a place for each hot kernel whose launch has a Python stack around it."""
    if columns.producer != "kineto" or not columns.set_aside.get("python_function"):
        return answers
    wanted = _launches(columns, answers)
    places = _places(file, {moment for moments in wanted.values() for moment in moments})
    devices = tuple(_placed(device, wanted, places) for device in answers.devices)
    return replace(answers, devices=devices)


def _launches(columns: Columns, answers: TraceFile) -> dict[tuple[str, str], list[int]]:
    """By device and kernel, when its longest runs were launched."""
    links = link(columns)
    device, found = columns.device, {}
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
            found[one.device, row.name] = columns.calls.start[links.call[longest]].tolist()
    return found


def _placed(device: DeviceTrace, wanted: dict[tuple[str, str], list[int]], places: dict[int, str]) -> DeviceTrace:
    rows = []
    for row in device.kernels:
        moments = wanted.get((device.device, row.name), [])
        place = next((places[moment] for moment in moments if moment in places), "")
        rows.append(replace(row, place=place))
    return replace(device, kernels=tuple(rows))


def _places(file: Path, moments: set[int]) -> dict[int, str]:
    """By moment the innermost frame around it that is not torch's own, or else the innermost at all."""
    sought = np.array(sorted(moments), dtype=np.int64)
    best: dict[int, tuple[bool, int, str]] = {}
    gc.disable()
    try:
        for frames in _frames(file):
            _look(frames, sought, best)
    finally:
        gc.enable()
    return {moment: name for moment, (_, _, name) in best.items()}


def _frames(file: Path) -> Any:  # noqa: ANN401 - an iterator of lists
    """The events of each piece; what is broken was counted in the first pass."""
    held, layout = b"", None
    for piece in ByteStream(file):
        held += piece
        if layout is None:
            start = find_events(held)
            if start is None or len(held) - start < _HEAD:
                continue
            layout, held = sniff(held[start:]), held[start:]
        border = last_border(held, layout)
        if border is None:
            continue
        yield _decoded(held[: border[0]])
        held = held[border[1] :]
    start = find_events(held) if layout is None else 0
    rest = held[start or 0 :]
    yield _decoded(rest[: rest.rfind(b"]")].rstrip())


def _decoded(text: bytes) -> list[Frame]:
    try:
        return [frame for frame in _DECODER.decode(b"[" + text + b"]") if frame.cat == "python_function"]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []


def _look(frames: list[Frame], sought: Column, best: dict[int, tuple[bool, int, str]]) -> None:
    if not frames or not len(sought):
        return
    start, good = nanoseconds([frame.ts for frame in frames])
    length, lasting = durations([frame.dur for frame in frames])
    first = np.searchsorted(sought, start, side="left")
    last = np.searchsorted(sought, start + length, side="right")
    for number in np.flatnonzero((last > first) & good & lasting):
        name = frames[number].name
        # The best is outside torch, then the shortest.
        rank = (any(part in name for part in _INSIDE), int(length[number]), name)
        for moment in sought[first[number] : last[number]].tolist():
            if moment not in best or rank < best[moment]:
                best[moment] = rank
