"""The timeline and the flame graph on the HTML page of a trace. They are not part of the JSON report."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class TimelineLane:
    """One row of the timeline."""

    label: str
    kind: str  # device, copy or host
    depth: int
    count: int


@dataclass(frozen=True, kw_only=True)
class FrameRow:
    """All calls of one Python function."""

    name: str
    count: int
    total_ns: int  # recursive calls are counted once
    self_ns: int
    device_ns: int  # device time of the work that the function and its callees launched


@dataclass(frozen=True, kw_only=True)
class FlameGraph:
    """Python stacks as a tree, whose roots are threads. Each tuple has one value per node, except `names` and `rows`."""

    names: tuple[str, ...]
    name_index: tuple[int, ...]  # into `names`
    parent: tuple[int, ...]  # -1 for a thread; a parent always comes before its children
    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...]
    count: tuple[int, ...]
    rows: tuple[FrameRow, ...] = ()
    dropped_calls: int = 0  # the shortest calls, when there were too many
    dropped_nodes: int = 0  # the nodes with the least time, when there were too many


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The events of a trace, packed for the browser.

    `data` is compressed with gzip and encoded as base64. For each lane it contains the differences between the starts,
    the durations, and the indices of the names, as uint32. For a lane of a device it also contains the index of the
    operator's name plus 1, the index of a text in `details`, and the number of the launch call among all events of
    host lanes, counted from 1; 0 is unknown.
    """

    data: str
    unit_ns: int  # starts and durations in `data` are multiples of this
    span_ns: int
    origin_ns: int
    names: tuple[str, ...]
    categories: tuple[int, ...]  # for each name, the index of its `Category`
    lanes: tuple[TimelineLane, ...]
    dropped_events: int = 0  # the shortest events of the host, when there were too many
    labels: Mapping[str, str] = field(default_factory=dict)  # by index of a name: a shorter one that is still distinct
    details: tuple[str, ...] = ()
    device_start_ns: Mapping[str, int] = field(default_factory=dict)  # each device's first event, since the origin
    flame: FlameGraph | None = None
