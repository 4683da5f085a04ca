"""Graphs on a device: CUDA graphs or, on ROCm, HIP graphs.

Memory comes from one pool for all graphs of a function, or from a pool per graph where sharing was seen to corrupt.
"""

import gc
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.errors import CannotRunError
from rocsolid.runtime.capture.backend import Suspect
from rocsolid.runtime.capture.lanes import Lane, lane_for
from rocsolid.runtime.capture.watching import first_suspect
from rocsolid.torchapi.graphs.capture_state import refusing_stance, rng_state_frozen
from rocsolid.torchapi.graphs.device_graphs import (
    leave_failed_capture,
    make_runnable,
    new_graph,
    nodes_being_captured,
    replay_of,
)
from rocsolid.torchapi.graphs.fast_checks import current_stream_number

_SPARE_BYTES: Final = 256 * 2**20


class Pool:
    """Memory for graphs. A handle is used again only while a graph still holds it: torch forgets it with its last graph."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._users = 0
        self._lock = threading.Lock()

    def take(self) -> Any:
        """A handle for one more graph."""
        with self._lock:
            if self._users == 0:
                self._handle = torch.cuda.graph_pool_handle()
            self._users += 1
            return self._handle

    def leave(self) -> None:
        """One graph less."""
        with self._lock:
            self._users -= 1


class DeviceGraph:
    """One captured graph."""

    def __init__(self, graph: Any, pool: Pool, nodes: int | None, held: int) -> None:
        self._graph = graph
        self._pool: Pool | None = pool
        self.nodes = nodes
        self.bytes = held
        self.replay: Callable[[], None] = replay_of(graph)

    def close(self) -> None:
        """Destroy it. On ROCm this waits for the device, so it is never done on the way of a call."""
        pool, self._pool = self._pool, None
        if pool is not None:
            self.replay = _closed
            self._graph.reset()
            pool.leave()

    def dump(self, path: str) -> None:
        """In the language of Graphviz, where the graph was kept; otherwise torch only warns."""
        Path(path).unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._graph.debug_dump(path)
        if not Path(path).exists():
            msg = (
                f"torch wrote nothing to {path}: of a captured graph it keeps what can be run, and what can be read only when "
                "asked to; capture with rs.capture(..., keep_graph=True)"
            )
            raise CannotRunError(msg)


def _closed() -> None:
    msg = "the graph has been closed"
    raise RuntimeError(msg)


class DeviceSession:
    """A capture under way."""

    def __init__(self, device: int, pool: Pool, generators: Sequence[Any], *, keep: bool) -> None:
        self._device = device
        self._pool = pool
        self._keep = keep
        self._generators = [generator for generator in generators if generator.device.type == "cuda"]
        self._graph: Any = None
        self._handle: Any = None
        self._scope = ExitStack()
        self._free = 0

    def begin(self) -> None:
        """Start recording on the current stream."""
        torch.cuda.synchronize(self._device)
        self._free = torch.cuda.mem_get_info(self._device)[0]
        self._scope.enter_context(rng_state_frozen())
        self._scope.enter_context(refusing_stance(if_any=True))
        graph = new_graph(keep=self._keep)
        for generator in self._generators:
            graph.register_generator_state(generator)
        self._handle = self._pool.take()
        self._graph = graph
        # rocsolid: allow[capture-on-default-stream] the section has entered the capture stream
        graph.capture_begin(pool=self._handle, capture_error_mode="thread_local")

    def end(self) -> DeviceGraph:
        """Stop recording; raises what the runtime has against it."""
        nodes = nodes_being_captured(torch.cuda.current_stream(self._device))
        self._graph.capture_end()
        if self._keep:
            make_runnable(self._graph)
        self._scope.close()
        graph, self._graph = self._graph, None
        held = max(0, self._free - torch.cuda.mem_get_info(self._device)[0])
        return DeviceGraph(graph, self._pool, nodes, held)

    def abort(self) -> None:
        """Leave a capture that failed."""
        self._scope.close()
        graph, self._graph = self._graph, None
        if graph is not None:
            leave_failed_capture(graph, self._device, self._handle, self._generators)
            self._pool.leave()


class StreamOrdering:
    """Lets calls from several streams follow each other on the device, without ever waiting on the host.

    Graphs of one function use each other's memory, the library's workspace at least, so they share one ordering: two that replay
    at once would corrupt each other.
    """

    def __init__(self, device: int) -> None:
        self.lock = threading.Lock()
        self._device = device
        self._stream = torch.cuda.current_stream(device)
        number = current_stream_number()
        self._current = number
        self._number = number(device)
        self._replayed: Any = None

    def before(self) -> bool:
        """Order the current stream behind the last one that used the graph; False inside somebody's capture."""
        number = self._current(self._device)
        return number == self._number or self._follow(number)

    def _follow(self, number: int) -> bool:
        now = torch.cuda.current_stream(self._device)
        if torch.cuda.is_current_stream_capturing():
            return False
        now.wait_stream(self._stream)
        self._stream, self._number = now, number
        return True

    def host_may_write(self) -> None:
        """Wait until the last replay has read the buffers that lie on the host."""
        if self._replayed is not None:
            self._replayed.synchronize()

    def replayed(self) -> None:
        """Mark the point up to which a replay reads the buffers on the host."""
        self._replayed = self._replayed or torch.cuda.Event()
        self._replayed.record(self._stream)

    def settle(self) -> None:
        """Wait until the last replay is over."""
        self._stream.synchronize()


class DeviceBackend:
    """Captures on one device."""

    name = "device"

    def __init__(self, device: Any, *, shared: bool, keep: bool = False) -> None:
        self._device: int = device.index if device.index is not None else torch.cuda.current_device()
        self._shared = Pool() if shared else None
        self._keep = keep
        self._caller: Any = None
        self._lane: Lane | None = None
        self._together: StreamOrdering | None = None

    @contextmanager
    def section(self) -> Iterator[None]:
        """On the capture stream, with the garbage collector off: it could destroy a graph or unload a kernel mid-capture."""
        collecting = gc.isenabled()
        with torch.cuda.device(self._device):
            self._lane = self._lane or lane_for(self, self._device)
            caller, stream = torch.cuda.current_stream(), self._lane.stream
            self._caller = caller
            stream.wait_stream(caller)
            gc.disable()
            used = stream
            try:
                with torch.cuda.stream(stream):
                    self._lane.make_ready()
                    try:
                        yield
                    finally:
                        used = torch.cuda.current_stream()  # another one, where a capture could not be ended
            finally:
                if collecting:
                    gc.enable()
                caller.wait_stream(used)
                if used.cuda_stream != stream.cuda_stream:
                    self._lane.lost, self._lane = True, None

    @contextmanager
    def warming(self) -> Iterator[None]:
        """On CUDA back on the caller's stream, on ROCm on the capture stream, for which hipBLASLt and AITER keep state.

        NVIDIA's libraries keep no more per stream than the lane has made ready. And a process that has launched more than a few
        kernels on a stream beside replays every graph more slowly from then on: see docs/background/capture.md.
        """
        if torch.version.hip is not None or self._lane is None:
            yield
            return
        self._caller.wait_stream(self._lane.stream)
        with torch.cuda.stream(self._caller):
            yield
        self._lane.stream.wait_stream(self._caller)

    def session(self, generators: Sequence[Any]) -> DeviceSession:
        """A new capture."""
        return DeviceSession(self._device, self._shared or Pool(), generators, keep=self._keep)

    def ordering(self) -> StreamOrdering:
        """One for all graphs of the function."""
        self._together = self._together or StreamOrdering(self._device)
        return self._together

    def room_for(self, wanted_bytes: int) -> str:
        """Free cached memory when the device is nearly full; says so when that is not enough."""
        if torch.cuda.mem_get_info(self._device)[0] < 2 * wanted_bytes + _SPARE_BYTES:
            torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(self._device)[0]
        if free < wanted_bytes:
            return f"the device has {free / 2**20:.0f} MiB left and the call's tensors alone take {wanted_bytes / 2**20:.0f} MiB"
        return ""

    def watched(self, body: Callable[[], Any]) -> Suspect | None:
        """Run the body with every wait for the device made an error, and name the operation that waits."""
        return first_suspect(body)
