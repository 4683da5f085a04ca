"""One graph with its buffers: copies a call's tensors in, replays, hands the results out. Nothing else is on that road."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from rocsolid.model.capture_report import GraphRecord
from rocsolid.runtime.capture.backend import Graph, Ordering
from rocsolid.runtime.capture.call import Call, CannotCapture
from rocsolid.runtime.capture.inputs import Buffer, filler
from rocsolid.runtime.capture.outputs import Outputs, giver
from rocsolid.runtime.capture.stamp import Stamp
from rocsolid.runtime.signature import CallSignature
from rocsolid.torchapi.graphs.memory import byte_count, storage_number

STALE: Final = object()  # something the graph was captured with has changed: the result is not to be used
FAILED: Final = object()  # a piece between two graphs did not do what it did before
INSIDE: Final = object()  # the call is made inside somebody else's capture, and takes part as itself
DUE: Final = object()  # it is time to compare with eager
_NEVER: Final = -1


class Entry:
    """A captured call."""

    def __init__(
        self, *, call: Call, graph: Graph, buffers: Sequence[Buffer], outputs: Outputs, stamp: Stamp, ordering: Ordering
    ) -> None:
        self.key = call.key
        self.signature: CallSignature = call.signature
        self.kept = call.kept
        self.graph = graph
        self.buffers = list(buffers)
        self.outputs = outputs
        self.stamp = stamp
        self.ordering = ordering
        self.lock = ordering.lock
        self.closed = False
        self.statics = [buffer.tensor for buffer in buffers]
        self.mutates: tuple[str, ...] = ()
        self.state: tuple[tuple[str, Any], ...] = ()  # tensors outside the arguments that the function writes to
        self.goes_another_way = False  # the function asks whether it is being captured, and acts on it
        self.early = False  # look at the stamp before the replay, because a replay too many would do harm
        self.written: tuple[int, ...] = ()  # arguments that the function writes to
        self.hits = 0
        self.checks = 0
        self.error: float | None = None
        self.capture_ms = 0.0
        self.used = 0  # when it was used last, by the function's own count of slow calls
        self.failure: CannotCapture | None = None
        self._left = _NEVER
        self._on_host = call.device.type != "cpu" and any(x.value.device.type == "cpu" for x in call.tensors)
        self._replay = graph.replay
        self._fill = filler(buffers)
        self._give = giver(outputs, "clone")
        self._plainly = False

    @property
    def bytes(self) -> int:
        """Memory that goes with the entry."""
        return self.graph.bytes + sum(byte_count(buffer.memory) for buffer in self.buffers)

    def hand_out(self, mode: str, *, without_grad: bool) -> None:
        """Decide how results are handed out, and whether gradients must be kept off the copies."""
        self._give = giver(self.outputs, mode)
        self._plainly = not (without_grad or self._on_host or self.written)

    def check_after(self, calls: int | None) -> None:
        """Ask for a comparison with eager after so many replays."""
        self._left = calls if calls is not None else _NEVER

    def run(self, tensors: Sequence[Any], lengths: Mapping[int, int], *, filled: bool = False) -> Any:
        """Answer a call; one of the objects above when it is not to be answered by a replay alone.

        `filled` says that the tensors are the buffers themselves.
        """
        with self.lock:
            if self.closed:  # by another thread, a moment ago
                return STALE
            self._left -= 1
            if self._left == 0:
                return DUE
            if not self.ordering.before():
                return INSIDE
            if self.early and not self.stamp.holds():
                return STALE
            try:
                if self._plainly:
                    if not filled:
                        self._fill(tensors)
                    self._replay()
                else:
                    self._fill_and_replay(tensors)
            except CannotCapture as failure:
                self.failure = failure
                return FAILED
            result = self._give(tensors, lengths)
            # The device is at work meanwhile.
            if not self.early and not self.stamp.holds():
                return STALE
            self.hits += 1
            return result

    def _fill_and_replay(self, tensors: Sequence[Any]) -> None:
        """With what few calls need: gradients kept off the copies, buffers on the host, arguments that are written to."""
        with torch.no_grad():
            if self._on_host:
                self.ordering.host_may_write()
            self._fill(tensors)
            self._replay()
            if self._on_host:
                self.ordering.replayed()
            for number in self.written:
                if tensors[number] is not self.statics[number]:
                    self.buffers[number].give_back(tensors[number])

    def replay_on(self, tensors: Sequence[Any], lengths: Mapping[int, int]) -> Any:
        """For comparisons: fill, replay, and copy the results, whatever the calls get."""
        with self.lock, torch.no_grad():
            self.ordering.before()
            self.ordering.host_may_write()
            self._fill(tensors)
            self._replay()
            self.ordering.replayed()
            owned = [tensor.clone() for tensor in self.outputs.current(lengths)]
            return self.outputs.put_together(owned, [static.clone() for static in self.statics])

    def shares_memory(self, tensors: Sequence[Any]) -> bool:
        """Whether an argument that is written to shares memory with another, which no separate buffers can repeat."""
        if not self.written:
            return False
        numbers = [storage_number(tensor) for tensor in tensors]
        return any(numbers.count(numbers[written]) > 1 for written in self.written)

    def record(self) -> GraphRecord:
        """For the report."""
        return GraphRecord(
            key=self.signature.parts,
            hits=self.hits,
            nodes=self.graph.nodes,
            bytes=self.bytes,
            capture_ms=self.capture_ms,
            error=self.error,
            checks=self.checks,
            mutates=self.mutates,
        )

    def dump(self, path: str) -> None:
        """Write down what is in the graph."""
        self.graph.dump(path)

    def close(self) -> None:
        """Give the graph and its buffers back."""
        with self.lock:
            self.closed = True
            self.graph.close()
            self.buffers, self.statics, self.kept = [], [], ()
