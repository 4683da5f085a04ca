"""Functions that torch's CUDA graphs lack: keep a graph for a dump, count its nodes, clean up after a failed capture."""

import contextlib
import ctypes
import gc
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rocsolid.torchapi.graphs.driver_api import driver_function, new_stream
from rocsolid.torchapi.private_api import private_name

_REPLAY = private_name(
    "torch._C",
    "_CUDAGraph.replay",
    "2.0..",
    gpu_builds_only=True,
    without="rs.capture: graphs are replayed with CUDAGraph.replay(), which costs a little more CPU time",
)
_KEEPS_MEMORY = "rs.capture: a failed capture keeps its memory pool until the process ends"
_END_POOL = private_name("torch._C", "_cuda_endAllocateToPool", "2.1..", gpu_builds_only=True, without=_KEEPS_MEMORY)
_RELEASE_POOL = private_name("torch._C", "_cuda_releasePool", "2.1..", gpu_builds_only=True, without=_KEEPS_MEMORY)
_CAPTURE_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_own_graphs: "weakref.WeakSet[Any]" = weakref.WeakSet()


def replay_function(graph: Any) -> Callable[[], None]:
    """Return the graph's C++ replay, without the Python method that only calls it."""
    replay = _REPLAY.find()
    bound: Callable[[], None] = replay.__get__(graph) if replay is not None else graph.replay
    return bound


def new_graph(*, keep: bool) -> Any:
    """Return an empty graph. With `keep` it can be dumped later, which costs CPU memory.

    Torch 2.8 and later have `keep_graph=True`. In earlier releases the debug mode keeps the graph; in 2.11 it does not.
    """
    import torch

    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True) if keep else torch.cuda.CUDAGraph()
    except TypeError:
        graph = torch.cuda.CUDAGraph()
        graph.enable_debug_mode()
    _own_graphs.add(graph)
    return graph


def has_other_graphs() -> bool:
    """Return whether the process has a graph that `new_graph` did not make, and that may read any memory."""
    import torch

    return any(
        type(value) is torch.cuda.CUDAGraph and value not in _own_graphs  # isinstance could run code of the object
        for value in gc.get_objects()
    )


def instantiate(graph: Any) -> None:
    """Instantiate a kept graph now instead of at its first replay; other graphs are instantiated at the end of the capture."""
    if hasattr(graph, "instantiate"):
        graph.instantiate()


def clean_up_failed_capture(graph: Any, device: int, pool: Any, generators: Sequence[Any]) -> None:
    """End a capture that failed, and undo what torch leaves behind (seen on 2.11).

    `capture_end` raises before it releases the memory pool, so allocations on the stream would still go to the pool. It also
    raises before it resets the random number generators, so the next draw would fail with "Offset increment outside graph
    capture". Where the runtime keeps capturing, the current stream is replaced by a new one.
    """
    import torch

    with contextlib.suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing was captured
        graph.capture_end()
        graph.reset()
        return
    end_pool, release_pool = _END_POOL.find(), _RELEASE_POOL.find()
    with contextlib.suppress(RuntimeError):
        if end_pool is not None and release_pool is not None:
            end_pool(device, pool)
            release_pool(device, pool)
    if is_capturing(torch.cuda.current_stream(device)):
        # Work on this stream would be recorded and not run, and a stream that waits for it would join the capture.
        torch.cuda.set_stream(new_stream(device))
    # A small successful capture resets the generators, and clears the "invalidated" state of the stream on HIP.
    small_graph = torch.cuda.CUDAGraph()
    for generator in generators:
        small_graph.register_generator_state(generator)
    with contextlib.suppress(RuntimeError):
        small_graph.capture_begin(capture_error_mode="thread_local")
        try:
            torch.empty(1, device=torch.device("cuda", device)).zero_()
        finally:
            small_graph.capture_end()
        small_graph.reset()


def is_capturing(stream: Any) -> bool:
    """Return whether the runtime is capturing a stream. HIP keeps capturing when it could not end a capture with unjoined work."""
    query, status = driver_function("StreamIsCapturing"), ctypes.c_int()
    if query is None or query(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(status)):
        return False
    return status.value == _CAPTURE_ACTIVE


def count_captured_nodes(stream: Any) -> int | None:
    """Return how many operations the capture on a stream has recorded; None where the runtime does not report it."""
    info, nodes = driver_function("StreamGetCaptureInfo_v2"), driver_function("GraphGetNodes")
    if info is None or nodes is None:
        return None
    status, capture_id, graph = ctypes.c_int(), ctypes.c_ulonglong(), ctypes.c_void_p()
    dependencies, count = ctypes.c_void_p(), ctypes.c_size_t()
    results = (ctypes.byref(result) for result in (status, capture_id, graph, dependencies, count))
    if info(ctypes.c_void_p(stream.cuda_stream), *results) or not graph.value:
        return None
    if nodes(graph, None, ctypes.byref(count)):
        return None
    return int(count.value)
