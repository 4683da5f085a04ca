"""The interface of a capture backend, and the lock that allows one capture at a time."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

capture_lock: Final = threading.RLock()  # one capture at a time in the process


@contextmanager
def pause_captures() -> Iterator[None]:
    """Start no capture of `rs.capture` while the block runs. Use it in a thread that queries events or streams.

    A query during a capture can make the capture fail, on HIP even from another thread.

    Example:
        >>> import rocsolid as rs
        >>> with rs.pause_captures():
        ...     pass  # event.query()

    """
    with capture_lock:
        yield


class Graph(Protocol):
    """Recorded work that can be replayed on the same memory."""

    nodes: int | None  # number of operations; None where the runtime does not report it
    bytes: int  # memory that the graph holds

    def replay(self) -> None:
        """Run the recorded work again."""
        ...

    def close(self) -> None:
        """Free the memory. Closing twice is allowed."""
        ...

    def dump(self, path: str) -> None:
        """Write the operations of the graph to a file."""
        ...


class Session(Protocol):
    """One capture. With eager segments it produces several graphs."""

    executes: bool  # whether work runs while it is recorded

    def begin(self) -> None:
        """Start recording."""
        ...

    def end(self) -> Graph:
        """Stop recording and return the graph; raises when the work cannot be captured."""
        ...

    def abort(self) -> None:
        """Clean up after a failed capture: no stream keeps capturing, no memory stays reserved."""
        ...


class Ordering(Protocol):
    """Orders calls from different threads and streams, for all graphs that share memory."""

    lock: threading.Lock  # held from the first copy into a buffer until the results are returned

    def wait_for_replays(self) -> bool:
        """Make the current stream wait for earlier replays. Call this before the buffers are written.

        Returns False when the current stream is being captured: the graph must not be replayed then.
        """
        ...

    def wait_for_host_reads(self) -> None:
        """Wait until the last replay has read the buffers in CPU memory."""
        ...

    def mark_replay(self) -> None:
        """Call after launching a replay that reads buffers in CPU memory."""
        ...

    def synchronize(self) -> None:
        """Wait until the last replay is finished, so that the graph can be destroyed."""
        ...


class Backend(Protocol):
    """Where work is captured."""

    name: str
    uses_gpu: bool

    def capture_scope(self) -> AbstractContextManager[None]:
        """Return a context for warm-up and capture: the device and capture stream are current, the garbage collector is off."""
        ...

    def warm_up_scope(self) -> AbstractContextManager[None]:
        """Return a context for the warm-up runs, inside the capture scope."""
        ...

    def new_session(self, generators: Sequence[Any]) -> Session:
        """Return a new capture; call this only inside the capture scope."""
        ...

    def ordering(self) -> Ordering:
        """Return the ordering of a new graph; graphs that share memory share it."""
        ...

    def missing_memory(self, needed_bytes: int) -> str:
        """Make room for a new graph. Returns what is missing when there is not enough memory, else an empty string."""
        ...
