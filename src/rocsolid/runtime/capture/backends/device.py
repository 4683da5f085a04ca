"""The device backend: CUDA graphs or, on ROCm, HIP graphs.

Memory comes from one pool for all graphs of a function, or from one pool per graph.
"""

import contextlib
import ctypes
import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import torch

from rocsolid.errors import CannotRunError
from rocsolid.torchapi.graphs.capture_state import device_waits_held_back, refusing_stance, rng_state_frozen
from rocsolid.torchapi.graphs.device_graphs import (
    clean_up_failed_capture,
    count_captured_nodes,
    instantiate,
    new_graph,
    replay_function,
)
from rocsolid.torchapi.graphs.driver_api import current_stream_handle, new_stream

_SPARE_BYTES: Final = 256 * 2**20  # with less free memory than this, torch's cache is emptied before a capture


class CaptureStream:
    """A stream to capture on, with the workspaces that the matrix libraries use in its graphs.

    The libraries keep one workspace per handle and stream, and a graph keeps using the workspace of the stream it was captured
    on. So each captured function has its own stream: two functions that replay at the same time would otherwise write into the
    same workspace. The workspace is in a memory pool of its own, because torch can free all workspaces, and their memory would
    then be given to other tensors. `mode="reduce-overhead"` frees them at every capture (seen on torch 2.11: a hand-made graph then
    failed with an illegal memory access).
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.stream = new_stream(device)
        self._pool = torch.cuda.MemPool()
        # Never destroyed: with torch 2.11, destroying it at exit ended the process after captures that had failed.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._pool))
        self._matrix = torch.zeros(8, 8, device=torch.device("cuda", device), dtype=torch.bfloat16)
        self.unusable = False  # set when a capture on it could not be ended

    def allocate_workspaces(self) -> None:
        """Make the matrix libraries allocate their workspaces on the current stream, which must be this one.

        Errors are ignored: a product that torch refuses here (deterministic algorithms) is refused in the captured function too.
        """
        with contextlib.suppress(RuntimeError), torch.no_grad(), torch.cuda.use_mem_pool(self._pool):
            matrix = self._matrix
            torch.addmm(matrix[0], matrix @ matrix, matrix)  # products with and without bias use different libraries


_unused_streams: Final[dict[int, list[CaptureStream]]] = {}
_unused_lock: Final = threading.Lock()


def acquire_capture_stream(user: object, device: int) -> CaptureStream:
    """Return a capture stream that belongs to `user` until `user` is garbage-collected. Then it is reused."""
    with _unused_lock:
        unused = _unused_streams.setdefault(device, [])
        stream = unused.pop() if unused else CaptureStream(device)
    weakref.finalize(user, _release, stream, unused).atexit = False
    return stream


def _release(stream: CaptureStream, unused: list[CaptureStream]) -> None:
    if not stream.unusable:
        unused.append(stream)


class MemoryPool:
    """A memory pool for graphs. Torch frees a pool with its last graph, so an empty pool gets a new handle."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._users = 0
        self._lock = threading.Lock()

    def acquire(self) -> Any:
        """Return the handle of the pool, and count one more graph that uses it."""
        with self._lock:
            if self._users == 0:
                self._handle = torch.cuda.graph_pool_handle()
            self._users += 1
            return self._handle

    def release(self) -> None:
        """Count one graph less that uses the pool."""
        with self._lock:
            self._users -= 1


class DeviceGraph:
    """One captured CUDA or HIP graph."""

    def __init__(self, graph: Any, pool: MemoryPool, nodes: int | None, held_bytes: int) -> None:
        self._graph = graph
        self._pool: MemoryPool | None = pool
        self.nodes = nodes
        self.bytes = held_bytes
        self.replay: Callable[[], None] = replay_function(graph)

    def close(self) -> None:
        """Destroy the graph. On ROCm this waits for the GPU, so it never happens during a call."""
        pool, self._pool = self._pool, None
        if pool is not None:
            self.replay = _raise_closed
            self._graph.reset()
            pool.release()

    def dump(self, path: str) -> None:
        """Write the graph in Graphviz format; requires `keep_graph=True`."""
        Path(path).unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._graph.debug_dump(path)
        if not Path(path).exists():
            msg = (
                f"nothing was written to {path}: torch keeps only the executable form of a graph\n"
                "fix: rs.capture(..., keep_graph=True)"
            )
            raise CannotRunError(msg)


def _raise_closed() -> None:
    msg = "the graph is closed"
    raise RuntimeError(msg)


class DeviceSession:
    """One capture on the current stream."""

    executes = False
    captures: ClassVar[int] = 0  # in this process so far

    def __init__(self, device: int, pool: MemoryPool, generators: Sequence[Any], *, keep: bool) -> None:
        self._device = device
        self._pool = pool
        self._keep = keep
        self._generators = [generator for generator in generators if generator.device.type == "cuda"]
        self._graph: Any = None
        self._handle: Any = None
        self._scope = ExitStack()
        self._free_bytes = 0

    def begin(self) -> None:
        """Start capturing."""
        torch.cuda.synchronize(self._device)
        self._free_bytes = torch.cuda.mem_get_info(self._device)[0]
        self._scope.enter_context(device_waits_held_back())
        self._scope.enter_context(rng_state_frozen())
        self._scope.enter_context(refusing_stance(if_any=True))
        graph = new_graph(keep=self._keep)
        for generator in self._generators:
            graph.register_generator_state(generator)
        self._handle = self._pool.acquire()
        self._graph = graph
        # rocsolid: allow[capture-on-default-stream] the capture scope has entered the capture stream
        graph.capture_begin(pool=self._handle, capture_error_mode="thread_local")

    def end(self) -> DeviceGraph:
        """Stop capturing; raises what the runtime reports."""
        nodes = count_captured_nodes(torch.cuda.current_stream(self._device))
        with warnings.catch_warnings():
            # A call without GPU work is refused; a graph between two modules in eager, or two reads, may be empty.
            warnings.filterwarnings("ignore", ".*Graph is empty")
            self._graph.capture_end()
        DeviceSession.captures += 1
        if self._keep:
            instantiate(self._graph)
        self._scope.close()
        graph, self._graph = self._graph, None
        held = max(0, self._free_bytes - torch.cuda.mem_get_info(self._device)[0])
        return DeviceGraph(graph, self._pool, nodes, held)

    def abort(self) -> None:
        """Clean up after a failed capture."""
        self._scope.close()
        graph, self._graph = self._graph, None
        if graph is not None:
            clean_up_failed_capture(graph, self._device, self._handle, self._generators)
            self._pool.release()


class StreamOrdering:
    """Orders calls from several streams on the GPU, without waiting on the CPU.

    The graphs of one function share memory, at least the library's workspace. So they share one ordering: two graphs that replay
    at the same time would corrupt each other.
    """

    def __init__(self, device: int) -> None:
        self.lock = threading.Lock()
        self._device = device
        self._stream = torch.cuda.current_stream(device)
        handle = current_stream_handle()
        self._current_handle = handle
        self._handle = handle(device)
        self._host_reads: Any = None  # event after the last replay that reads buffers in CPU memory

    def wait_for_replays(self) -> bool:
        """Make the current stream wait for the stream of the last replay. Returns False while it is being captured."""
        handle = self._current_handle(self._device)
        return handle == self._handle or self._switch_stream(handle)

    def _switch_stream(self, handle: int) -> bool:
        stream = torch.cuda.current_stream(self._device)
        if torch.cuda.is_current_stream_capturing():
            return False
        stream.wait_stream(self._stream)
        self._stream, self._handle = stream, handle
        return True

    def wait_for_host_reads(self) -> None:
        """Wait until the last replay has read the buffers in CPU memory."""
        if self._host_reads is not None:
            self._host_reads.synchronize()

    def mark_replay(self) -> None:
        """Record the point up to which a replay reads buffers in CPU memory."""
        self._host_reads = self._host_reads or torch.cuda.Event()
        self._host_reads.record(self._stream)

    def synchronize(self) -> None:
        """Wait until the last replay is finished."""
        self._stream.synchronize()


class DeviceBackend:
    """Captures on one GPU."""

    name = "device"
    uses_gpu = True

    def __init__(
        self, device: Any, *, shared_pool: bool, warm_up_on_capture_stream: bool = False, keep_graph: bool = False
    ) -> None:
        self._device: int = device.index if device.index is not None else torch.cuda.current_device()
        self._shared_pool = MemoryPool() if shared_pool else None
        self._warm_up_on_capture_stream = warm_up_on_capture_stream
        self._keep_graph = keep_graph
        self._caller_stream: Any = None
        self._capture_stream: CaptureStream | None = None
        self._ordering: StreamOrdering | None = None

    @contextmanager
    def capture_scope(self) -> Iterator[None]:
        """Make the capture stream current, and turn the garbage collector off.

        The garbage collector could destroy a graph or unload a kernel during a capture.
        """
        gc_was_enabled = gc.isenabled()
        with torch.cuda.device(self._device):
            self._capture_stream = self._capture_stream or acquire_capture_stream(self, self._device)
            caller, stream = torch.cuda.current_stream(), self._capture_stream.stream
            self._caller_stream = caller
            stream.wait_stream(caller)
            gc.disable()
            last_stream = stream
            try:
                with torch.cuda.stream(stream):
                    self._capture_stream.allocate_workspaces()
                    try:
                        yield
                    finally:
                        last_stream = torch.cuda.current_stream()  # another one if a capture could not be ended
            finally:
                if gc_was_enabled:
                    gc.enable()
                caller.wait_stream(last_stream)
                if last_stream.cuda_stream != stream.cuda_stream:
                    self._capture_stream.unusable, self._capture_stream = True, None

    @contextmanager
    def warm_up_scope(self) -> Iterator[None]:
        """Make the caller's stream current, or the capture stream where libraries keep state per stream (ROCm).

        Launching more than a few kernels on a side stream makes every CUDA graph of the process slower: see
        docs/background/capture.md. NVIDIA's libraries keep nothing but workspaces per stream.
        """
        if self._warm_up_on_capture_stream or self._capture_stream is None:
            yield
            return
        self._caller_stream.wait_stream(self._capture_stream.stream)
        with torch.cuda.stream(self._caller_stream):
            yield
        self._capture_stream.stream.wait_stream(self._caller_stream)

    def new_session(self, generators: Sequence[Any]) -> DeviceSession:
        """Return a new capture."""
        return DeviceSession(self._device, self._shared_pool or MemoryPool(), generators, keep=self._keep_graph)

    def ordering(self) -> StreamOrdering:
        """Return the one ordering of all graphs of the function."""
        self._ordering = self._ordering or StreamOrdering(self._device)
        return self._ordering

    def missing_memory(self, needed_bytes: int) -> str:
        """Free torch's cached memory when the GPU is nearly full. Returns an error message when that is not enough."""
        if torch.cuda.mem_get_info(self._device)[0] < 2 * needed_bytes + _SPARE_BYTES:
            torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(self._device)[0]
        if free < needed_bytes:
            return (
                f"not enough GPU memory: {free / 2**20:.0f} MiB are free, "
                f"the static inputs alone need {needed_bytes / 2**20:.0f} MiB"
            )
        return ""
