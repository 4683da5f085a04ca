"""What a captured function asks of the thing that captures: a device's graphs, or a tape on the CPU."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rocsolid.model.capture_report import Reason

capture_lock: Final = threading.RLock()  # one capture at a time in the process


@contextmanager
def hold_off_captures() -> Iterator[None]:
    """No capture of ours begins while the block runs: for a thread that asks events or streams how far they are.

    Such a question in the middle of a capture can end it, on HIP even from another thread.

    Example:
        >>> import rocsolid as rs
        >>> with rs.hold_off_captures():
        ...     pass  # event.query()

    """
    with capture_lock:
        yield


class Graph(Protocol):
    """Recorded work that can be done again, on the same memory."""

    nodes: int | None  # operations in it, where that can be known
    bytes: int  # memory that it holds

    def replay(self) -> None:
        """Do it again."""
        ...

    def close(self) -> None:
        """Give the memory back; once is enough and twice does no harm."""
        ...

    def dump(self, path: str) -> None:
        """Write down what is in it, for a reader."""
        ...


class Session(Protocol):
    """A capture under way; it may be cut into several graphs."""

    def begin(self) -> None:
        """From here on, what runs is recorded."""
        ...

    def end(self) -> Graph:
        """What was recorded since; raises when the work cannot be recorded."""
        ...

    def abort(self) -> None:
        """Leave nothing behind of a capture that failed: no stream capturing, no memory set aside."""
        ...


class Ordering(Protocol):
    """Keeps calls from different threads and streams apart, for all graphs that share memory."""

    lock: threading.Lock  # held from before the first copy until the results are handed out

    def before(self) -> bool:
        """The current stream is about to write the buffers and to replay; False where it may not, inside another capture."""
        ...

    def host_may_write(self) -> None:
        """Wait until the last replay has read the buffers that lie on the host."""
        ...

    def replayed(self) -> None:
        """A replay that reads such buffers has been started."""
        ...

    def settle(self) -> None:
        """Wait until the last replay is over, so that the graph may be destroyed."""
        ...


class Backend(Protocol):
    """Where work is captured."""

    name: str

    def section(self) -> AbstractContextManager[None]:
        """Around warm-up and capture: one at a time in the process, in the place where they must happen."""
        ...

    def warming(self) -> AbstractContextManager[None]:
        """Around the warm-ups, in the section: where what happens once does not slow down what happens often."""
        ...

    def session(self, generators: Sequence[Any]) -> Session:
        """A new capture; in the section alone."""
        ...

    def ordering(self) -> Ordering:
        """For a new graph: that of all graphs whose memory it shares."""
        ...

    def room_for(self, wanted_bytes: int) -> str:
        """Make room for a new graph; says what is missing when there is not enough."""
        ...

    def watched(self, body: Callable[[], Any]) -> "Suspect | None":
        """Run the body without capturing, and name the first operation that no capture allows."""
        ...


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """An operation that breaks captures."""

    operation: str
    place: str
    cause: Reason
    fix: str
