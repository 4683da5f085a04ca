"""What torch's device graphs need beside their public methods: keeping one, counting nodes, leaving a failed capture cleanly."""

import contextlib
import ctypes
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from rocsolid.torchapi.graphs.driver_api import call_named, new_stream
from rocsolid.torchapi.private_api import private

_REPLAY = private("torch._C", "_CUDAGraph.replay", "2.0..", device_build=True)
_END_POOL = private("torch._C", "_cuda_endAllocateToPool", "2.1..", device_build=True)
_RELEASE_POOL = private("torch._C", "_cuda_releasePool", "2.1..", device_build=True)


def replay_of(graph: Any) -> Callable[[], None]:
    """The graph's replay, past the Python method that only calls it."""
    bound: Callable[[], None] = _REPLAY.get().__get__(graph)
    return bound


def new_graph(*, keep: bool) -> Any:
    """An empty graph; one that is kept can be written down for a reader, and takes more memory of the host.

    Torch 2.8 and later keep it when asked to; before, they did in their debug mode, which in 2.11 keeps nothing.
    """
    import torch

    if not keep:
        return torch.cuda.CUDAGraph()
    try:
        return torch.cuda.CUDAGraph(keep_graph=True)
    except TypeError:
        graph = torch.cuda.CUDAGraph()
        graph.enable_debug_mode()
        return graph


def make_runnable(graph: Any) -> None:
    """Do for a graph that is kept what the end of its capture does for others, now and not with its first replay."""
    if hasattr(graph, "instantiate"):
        graph.instantiate()


def leave_failed_capture(graph: Any, device: int, pool: Any, generators: Sequence[Any]) -> None:
    """End a capture in which something failed, and undo what torch leaves behind of it (seen on 2.11).

    Ending it raises before the memory pool is let go, so allocations on the stream would go on landing there, and before the
    generators of random numbers are told, so that the next draw would fail with "Offset increment outside graph capture". Where the
    runtime goes on capturing all the same, the current stream becomes another one.
    """
    import torch

    with contextlib.suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing was captured
        graph.capture_end()
        graph.reset()
        return
    with contextlib.suppress(RuntimeError):
        _END_POOL.get()(device, pool)
        _RELEASE_POOL.get()(device, pool)
    if still_capturing(torch.cuda.current_stream(device)):
        # Whatever ran there would be recorded and not done, and whoever waited for it would be drawn in.
        torch.cuda.set_stream(new_stream(device))
    # A capture that goes well tells the generators that capturing is over, and HIP that the stream is no longer invalidated.
    healing = torch.cuda.CUDAGraph()
    for generator in generators:
        healing.register_generator_state(generator)
    with contextlib.suppress(RuntimeError):
        healing.capture_begin(capture_error_mode="thread_local")
        try:
            torch.empty(1, device=torch.device("cuda", device)).zero_()
        finally:
            healing.capture_end()
        healing.reset()


def still_capturing(stream: Any) -> bool:
    """Whether a stream captures, as the runtime sees it: HIP goes on after an end that failed over unjoined work."""
    ask, state = call_named("StreamIsCapturing"), ctypes.c_int()
    active = 1
    return (
        ask is not None and not ask(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(state)) and state.value == active
    )


def nodes_being_captured(stream: Any) -> int | None:
    """How many operations the capture on a stream has recorded so far; None where the runtime does not tell."""
    info, nodes = call_named("StreamGetCaptureInfo_v2"), call_named("GraphGetNodes")
    if info is None or nodes is None:
        return None
    status, identity, graph = ctypes.c_int(), ctypes.c_ulonglong(), ctypes.c_void_p()
    dependencies, count = ctypes.c_void_p(), ctypes.c_size_t()
    parts = (ctypes.byref(part) for part in (status, identity, graph, dependencies, count))
    if info(ctypes.c_void_p(stream.cuda_stream), *parts) or not graph.value:
        return None
    if nodes(graph, None, ctypes.byref(count)):
        return None
    return int(count.value)
