"""Host stacks by Python frame: how long each stack ran, and how much work it gave to the device."""

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rocsolid.model.trace_view import Flame, FrameRow
from rocsolid.trace.columns import Column, Columns
from rocsolid.trace.event_columns import Words
from rocsolid.trace.link_launches import link
from rocsolid.trace.python_frames import Frames, longest

MOST_FRAMES: Final = 1_000_000
MOST_NODES: Final = 20_000
_ROWS: Final = 200
_SPELLED: Final = 100_000
# An address would make every object a function of its own, and a number every layer.
_OWN: Final = re.compile(r" at 0x[0-9a-fA-F]+|(?<=^nn\.Module: )(.*)_\d+$")


@dataclass(kw_only=True)
class FlameBuilder:
    """Takes frames piece by piece; of too many it keeps the longest."""

    names: Words = field(default_factory=Words)
    spelled: dict[str, int] = field(default_factory=dict)
    threads: Words = field(default_factory=Words)
    parts: list[tuple[Column, Column, Column, Column]] = field(default_factory=list)
    held: int = 0
    left_out: int = 0

    def take(self, frames: Frames) -> None:
        """Some more frames."""
        if len(self.spelled) > _SPELLED:  # every address is a spelling of its own
            self.spelled.clear()
        spelled = self.spelled
        for name in set(frames.names).difference(spelled):
            spelled[name] = self.names[_common(name)]
        names = np.array([spelled[name] for name in frames.names], dtype=np.int32)
        threads = np.array([self.threads[thread] for thread in frames.threads], dtype=np.int32)
        self.parts.append((frames.start, frames.end, names, threads))
        self.held += len(names)
        if self.held > 2 * MOST_FRAMES:
            self._thin()

    def _thin(self) -> None:
        start, end, name, thread = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        kept = longest(end - start, MOST_FRAMES)
        self.left_out += int((~kept).sum())
        self.parts = [(start[kept], end[kept], name[kept], thread[kept])]
        self.held = int(kept.sum())

    def flame(self, columns: Columns) -> Flame | None:
        """The tree of all stacks."""
        if not self.parts:
            return None
        self._thin()
        start, end, name, thread = self.parts[0]
        launches = _launches(columns)
        tree = _Tree(names=list(self.names))
        for number, ident in enumerate(self.threads):
            mine = np.flatnonzero(thread == number)
            mine = mine[np.lexsort((-end[mine], start[mine]))]
            label = columns.thread_names.get(ident, f"thread {ident}")
            tree.grow(label, start[mine], end[mine], name[mine], launches.pop(ident, _NONE))
        for ident, given in launches.items():
            label = columns.thread_names.get(ident, f"thread {ident}")
            tree.grow(f"{label}: no Python frames", *_EMPTY, given)
        return tree.flame(self.left_out)


def _common(name: str) -> str:
    return _OWN.sub(lambda found: found[1] or "", name)


_NONE: Final = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
_EMPTY: Final = (_NONE[0], _NONE[0], _NONE[0])


def _launches(columns: Columns) -> dict[str, tuple[Column, Column]]:
    """By thread, when its calls gave work to a device, and how long that work took there."""
    links = link(columns)
    linked = np.flatnonzero(links.call >= 0)
    time = columns.device.end - columns.device.start
    sums = np.zeros(len(columns.calls), dtype=np.int64)
    np.add.at(sums, links.call[linked], time[linked])
    calls = np.flatnonzero(sums)
    calls = calls[np.argsort(columns.calls.start[calls], kind="stable")]
    thread = columns.calls.thread[calls]
    return {
        columns.threads[number]: (columns.calls.start[calls[thread == number]], sums[calls[thread == number]])
        for number in np.unique(thread).tolist()
    }


@dataclass(kw_only=True)
class _Tree:
    """Stacks that share their beginning share its nodes; a parent has a lower number than its children."""

    names: list[str]
    name: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    host: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    known: dict[tuple[int, int], int] = field(default_factory=dict)

    def node(self, parent: int, name: int) -> int:
        found = self.known.setdefault((parent, name), len(self.name))
        if found == len(self.name):
            self.name.append(name)
            self.parent.append(parent)
            for column in (self.host, self.device, self.count):
                column.append(0)
        return found

    def grow(self, label: str, start: Column, end: Column, name: Column, launches: tuple[Column, Column]) -> None:
        """The stacks of one thread, given in order of their beginning, the longer first."""
        self.names.append(label)
        root = self.node(-1, len(self.names) - 1)
        self.count[root] = 1
        stack = [root]
        until = [2**63]
        moments, work = (column.tolist() for column in launches)
        following = 0
        host, count, known = self.host, self.count, self.known
        for begun, ended, called in zip(start.tolist(), end.tolist(), name.tolist(), strict=True):
            while following < len(moments) and moments[following] < begun:
                self._launch(stack, until, moments[following], work[following])
                following += 1
            while until[-1] <= begun:
                until.pop()
                stack.pop()
            node = known.get((stack[-1], called), -1)
            if node < 0:
                node = self.node(stack[-1], called)
            host[node] += ended - begun
            count[node] += 1
            if len(stack) == 1:
                host[root] += ended - begun
            stack.append(node)
            until.append(ended)
        for moment, amount in zip(moments[following:], work[following:], strict=True):
            self._launch(stack, until, moment, amount)

    def _launch(self, stack: list[int], until: list[int], moment: int, work: int) -> None:
        while until[-1] <= moment:
            until.pop()
            stack.pop()
        self.device[stack[-1]] += work

    def flame(self, left_out: int) -> Flame:
        own_host = list(self.host)
        for node in range(len(self.name) - 1, -1, -1):
            above = self.parent[node]
            if above >= 0:
                self.device[above] += self.device[node]
                own_host[above] -= self.host[node]
        kept = self._kept()
        number = {node: place for place, node in enumerate(kept)}
        words: dict[int, int] = {}
        return Flame(
            name=tuple(words.setdefault(self.name[node], len(words)) for node in kept),
            names=tuple(self.names[word] for word in words),
            parent=tuple(number.get(self.parent[node], -1) for node in kept),
            host_ns=tuple(self.host[node] for node in kept),
            device_ns=tuple(self.device[node] for node in kept),
            count=tuple(self.count[node] for node in kept),
            rows=self._rows(own_host),
            left_out=left_out,
            pruned=len(self.name) - len(kept),
        )

    def _kept(self) -> list[int]:
        """The nodes worth drawing; a parent weighs no less than a child, so what is kept hangs together."""
        host, device = np.array(self.host, dtype=np.float64), np.array(self.device, dtype=np.float64)
        roots = np.array(self.parent) < 0
        weight = np.maximum(host / max(host[roots].sum(), 1), device / max(device[roots].sum(), 1))
        if len(weight) <= MOST_NODES:
            return list(range(len(weight)))
        least = np.partition(weight, len(weight) - MOST_NODES)[len(weight) - MOST_NODES]
        kept: list[int] = np.flatnonzero((weight > least) | roots).tolist()
        return kept

    def _rows(self, own_host: list[int]) -> tuple[FrameRow, ...]:
        """Each function over all stacks; one that calls itself counts once."""
        sums: dict[int, list[int]] = {}
        for node, name in enumerate(self.name):
            if self.parent[node] < 0:
                continue
            row = sums.setdefault(name, [0, 0, 0, 0])
            again = self._above(node, name)
            for column, value in enumerate(
                (self.count[node], 0 if again else self.host[node], own_host[node], 0 if again else self.device[node])
            ):
                row[column] += value
        found = [
            FrameRow(name=self.names[name], count=count, total_ns=total, self_ns=max(0, own), device_ns=device)
            for name, (count, total, own, device) in sums.items()
        ]
        return tuple(sorted(found, key=lambda row: (-row.self_ns, row.name))[:_ROWS])

    def _above(self, node: int, name: int) -> bool:
        above = self.parent[node]
        while above >= 0:
            if self.name[above] == name:
                return True
            above = self.parent[above]
        return False
