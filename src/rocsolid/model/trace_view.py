"""What a page about a trace draws: the timeline and the stacks of the host; no part of the record."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One row of the picture."""

    label: str
    kind: str  # device, copy or host
    depth: int
    count: int


@dataclass(frozen=True, kw_only=True)
class FrameRow:
    """All calls of one Python function."""

    name: str
    count: int
    total_ns: int  # one that calls itself counts once
    self_ns: int
    device_ns: int  # of work that was launched below it


@dataclass(frozen=True, kw_only=True)
class Flame:
    """Host stacks as a tree: node by node its name, parent and weights; roots are threads."""

    names: tuple[str, ...]
    name: tuple[int, ...]
    parent: tuple[int, ...]  # -1 for a thread; always before its children
    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...]
    count: tuple[int, ...]
    rows: tuple[FrameRow, ...] = ()
    left_out: int = 0  # calls, the shortest, when there were too many
    pruned: int = 0  # nodes too light to draw


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A picture of a trace; `data` holds, lane by lane, steps between starts, lengths and names, packed."""

    data: str
    unit_ns: int
    span_ns: int
    origin_ns: int
    names: tuple[str, ...]
    categories: tuple[int, ...]  # by name, numbers of `Category`
    lanes: tuple[Lane, ...]
    left_out: int = 0
    device_ns: Mapping[str, int] = field(default_factory=dict)  # where each device's first event stands
    flame: Flame | None = None
