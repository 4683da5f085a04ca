"""Builds the flame graph: host time of each Python stack, and device time of the work that it launched."""

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rocsolid.model.trace_view import FlameGraph, FrameRow
from rocsolid.trace.analysis.link_launches import link_launches
from rocsolid.trace.columns import Column, IdTable, TraceColumns
from rocsolid.trace.readers.python_frames import Frames, longest_mask

MAX_FRAMES: Final = 1_000_000
MAX_NODES: Final = 20_000
_MAX_ROWS: Final = 200
_MAX_CACHED_NAMES: Final = 100_000
# Addresses and layer numbers are removed from names, so that all objects and layers of one class are one node.
_ADDRESS_OR_NUMBER: Final = re.compile(r" at 0x[0-9a-fA-F]+|(?<=^nn\.Module: )(.*)_\d+$")


@dataclass(kw_only=True)
class FlameGraphBuilder:
    """Builds a flame graph from frames that are added chunk by chunk. Of more than `MAX_FRAMES`, the longest are kept."""

    names: IdTable = field(default_factory=IdTable)
    name_ids: dict[str, int] = field(default_factory=dict)  # a cache: the id in `names` of each name in the trace
    threads: IdTable = field(default_factory=IdTable)
    parts: list[tuple[Column, Column, Column, Column]] = field(default_factory=list)  # start, end, name, thread
    frame_count: int = 0  # in `parts`
    dropped: int = 0

    def add(self, frames: Frames) -> None:
        """Add frames."""
        if len(self.name_ids) > _MAX_CACHED_NAMES:  # names with addresses are all different
            self.name_ids.clear()
        name_ids = self.name_ids
        for name in set(frames.names).difference(name_ids):
            name_ids[name] = self.names[_common_name(name)]
        names = np.array([name_ids[name] for name in frames.names], dtype=np.int32)
        threads = np.array([self.threads[thread] for thread in frames.threads], dtype=np.int32)
        self.parts.append((frames.start, frames.end, names, threads))
        self.frame_count += len(names)
        if self.frame_count > 2 * MAX_FRAMES:
            self._drop_shortest()

    def _drop_shortest(self) -> None:
        start, end, name, thread = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        kept = longest_mask(end - start, MAX_FRAMES)
        self.dropped += int((~kept).sum())
        self.parts = [(start[kept], end[kept], name[kept], thread[kept])]
        self.frame_count = int(kept.sum())

    def build(self, columns: TraceColumns) -> FlameGraph | None:
        """Return the tree of all stacks; None when there are no frames."""
        if not self.parts:
            return None
        self._drop_shortest()
        start, end, name, thread = self.parts[0]
        launches = launch_times(columns)
        tree = _Tree(names=list(self.names))
        for index, thread_id in enumerate(self.threads):
            rows = np.flatnonzero(thread == index)
            rows = rows[np.lexsort((-end[rows], start[rows]))]
            label = columns.thread_names.get(thread_id, f"thread {thread_id}")
            tree.add_thread(label, start[rows], end[rows], name[rows], launches.pop(thread_id, _NO_LAUNCHES))
        for thread_id, thread_launches in launches.items():
            label = columns.thread_names.get(thread_id, f"thread {thread_id}")
            tree.add_thread(f"{label}: no Python frames", *_NO_FRAMES, thread_launches)
        return tree.flame_graph(self.dropped)


def _common_name(name: str) -> str:
    """Return the name without an address or layer number."""
    return _ADDRESS_OR_NUMBER.sub(lambda found: found[1] or "", name)


_NO_LAUNCHES: Final = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
_NO_FRAMES: Final = (_NO_LAUNCHES[0], _NO_LAUNCHES[0], _NO_LAUNCHES[0])


def launch_times(columns: TraceColumns) -> dict[str, tuple[Column, Column]]:
    """Return for each thread the starts of the calls that launched work, and the device time of that work."""
    links = link_launches(columns)
    linked = np.flatnonzero(links.call_row >= 0)
    time = columns.device.end - columns.device.start
    sums = np.zeros(len(columns.calls), dtype=np.int64)
    np.add.at(sums, links.call_row[linked], time[linked])
    calls = np.flatnonzero(sums)
    calls = calls[np.argsort(columns.calls.start[calls], kind="stable")]
    thread = columns.calls.thread[calls]
    return {
        columns.threads[number]: (columns.calls.start[calls[thread == number]], sums[calls[thread == number]])
        for number in np.unique(thread).tolist()
    }


@dataclass(kw_only=True)
class _Tree:
    """A tree of stacks. Stacks share the nodes of their common callers; a parent comes before its children."""

    names: list[str]
    name: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    host: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    node_ids: dict[tuple[int, int], int] = field(default_factory=dict)  # by parent and name

    def node(self, parent: int, name: int) -> int:
        """Return the child of a node that has this name; it is added if it is new."""
        node_id = self.node_ids.setdefault((parent, name), len(self.name))
        if node_id == len(self.name):
            self.name.append(name)
            self.parent.append(parent)
            for column in (self.host, self.device, self.count):
                column.append(0)
        return node_id

    def add_thread(self, label: str, start: Column, end: Column, name: Column, launches: tuple[Column, Column]) -> None:
        """Add the stacks of one thread. Frames are sorted by start, the longer first."""
        self.names.append(label)
        root = self.node(-1, len(self.names) - 1)
        self.count[root] = 1
        stack = [root]
        ends = [2**63]  # when the frames on the stack end
        launch_times, device_ns = (column.tolist() for column in launches)
        next_launch = 0
        host, count, node_ids = self.host, self.count, self.node_ids
        for begin, stop, called in zip(start.tolist(), end.tolist(), name.tolist(), strict=True):
            while next_launch < len(launch_times) and launch_times[next_launch] < begin:
                self._add_launch(stack, ends, launch_times[next_launch], device_ns[next_launch])
                next_launch += 1
            while ends[-1] <= begin:
                ends.pop()
                stack.pop()
            node = node_ids.get((stack[-1], called), -1)
            if node < 0:
                node = self.node(stack[-1], called)
            host[node] += stop - begin
            count[node] += 1
            if len(stack) == 1:
                host[root] += stop - begin
            stack.append(node)
            ends.append(stop)
        for time, work_ns in zip(launch_times[next_launch:], device_ns[next_launch:], strict=True):
            self._add_launch(stack, ends, time, work_ns)

    def _add_launch(self, stack: list[int], ends: list[int], time: int, device_ns: int) -> None:
        """Add the device time of a launch to the innermost frame that was running."""
        while ends[-1] <= time:
            ends.pop()
            stack.pop()
        self.device[stack[-1]] += device_ns

    def flame_graph(self, dropped_calls: int) -> FlameGraph:
        self_ns = list(self.host)
        for node in range(len(self.name) - 1, -1, -1):
            parent = self.parent[node]
            if parent >= 0:
                self.device[parent] += self.device[node]
                self_ns[parent] -= self.host[node]
        kept = self._heaviest()
        new_index = {node: index for index, node in enumerate(kept)}
        ids: dict[int, int] = {}
        return FlameGraph(
            name_index=tuple(ids.setdefault(self.name[node], len(ids)) for node in kept),
            names=tuple(self.names[name] for name in ids),
            parent=tuple(new_index.get(self.parent[node], -1) for node in kept),
            host_ns=tuple(self.host[node] for node in kept),
            device_ns=tuple(self.device[node] for node in kept),
            count=tuple(self.count[node] for node in kept),
            rows=self._rows(self_ns),
            dropped_calls=dropped_calls,
            dropped_nodes=len(self.name) - len(kept),
        )

    def _heaviest(self) -> list[int]:
        """Return the nodes with the most time, at most `MAX_NODES`.

        A parent has at least as much time as each of its children, so the result is a tree.
        """
        host, device = np.array(self.host, dtype=np.float64), np.array(self.device, dtype=np.float64)
        roots = np.array(self.parent) < 0
        weight = np.maximum(host / max(host[roots].sum(), 1), device / max(device[roots].sum(), 1))
        if len(weight) <= MAX_NODES:
            return list(range(len(weight)))
        threshold = np.partition(weight, len(weight) - MAX_NODES)[len(weight) - MAX_NODES]
        kept: list[int] = np.flatnonzero((weight > threshold) | roots).tolist()
        return kept

    def _rows(self, self_ns: list[int]) -> tuple[FrameRow, ...]:
        """Add up the times of each function over all stacks. Recursive calls count once."""
        sums: dict[int, list[int]] = {}
        for node, name in enumerate(self.name):
            if self.parent[node] < 0:
                continue
            row = sums.setdefault(name, [0, 0, 0, 0])
            recursive = self._has_ancestor(node, name)
            for column, value in enumerate(
                (
                    self.count[node],
                    0 if recursive else self.host[node],
                    self_ns[node],
                    0 if recursive else self.device[node],
                )
            ):
                row[column] += value
        rows = [
            FrameRow(name=self.names[name], count=count, total_ns=total, self_ns=max(0, self_time), device_ns=device)
            for name, (count, total, self_time, device) in sums.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-row.self_ns, row.name))[:_MAX_ROWS])

    def _has_ancestor(self, node: int, name: int) -> bool:
        ancestor = self.parent[node]
        while ancestor >= 0:
            if self.name[ancestor] == name:
                return True
            ancestor = self.parent[ancestor]
        return False
