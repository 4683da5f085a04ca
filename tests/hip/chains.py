"""Longer walks than one call, each in a process of its own: what the runtime does to large graphs, and after a failure.

python3 chains.py LIBRARY KERNEL WALK [NUMBER]
"""

import ctypes as c
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.hip.cases import MODES, NON_BLOCKING, Runtime

THREAD_LOCAL = MODES.index("thread_local")


def captured(rt: Runtime, stream: c.c_void_p, launches: int = 1) -> int:
    """Capture so many kernels on a stream: the first error, or how many nodes there are as a negative number."""
    graph = c.c_void_p()
    error = rt.call("StreamBeginCapture", stream, THREAD_LOCAL)
    for _ in range(launches):
        error = error or rt.launch(stream)
    return error or rt.call("StreamEndCapture", stream, c.byref(graph)) or -rt.nodes(graph)


def replay(rt: Runtime, number: int) -> dict[str, int]:
    """How many kernels reach the chip when so many were captured."""
    model = c.CDLL(os.environ["HSA_MODEL_LIB"])
    rt.must("StreamBeginCapture", rt.stream, THREAD_LOCAL)
    for _ in range(number):
        rt.launch(rt.stream)
    graph = rt.make_last("StreamEndCapture", rt.stream)
    made = rt.make("GraphInstantiate", graph, None, None, c.c_size_t(0))
    before = model.idle_gpu_kernels()
    rt.must("GraphLaunch", made, rt.stream)
    rt.must("StreamSynchronize", rt.stream)
    return {"nodes": rt.nodes(graph), "kernels": model.idle_gpu_kernels() - before}


def after_refusal(rt: Runtime, _: int) -> dict[str, int | str]:
    """What our capture section does: end the capture that failed once, then capture well on the same stream."""
    rt.must("StreamBeginCapture", rt.stream, THREAD_LOCAL)
    refused = rt.call("StreamSynchronize", rt.stream)
    ended = rt.call("StreamEndCapture", rt.stream, c.byref(c.c_void_p()))
    state = rt.state(rt.stream)
    healed = captured(rt, rt.stream)
    return {
        "refused": refused,
        "ended": ended,
        "state": state,
        "healed": healed,
        "state at last": rt.state(rt.stream),
        "waits": rt.call("StreamSynchronize", rt.stream),
        "elsewhere": captured(rt, rt.make("StreamCreateWithFlags", NON_BLOCKING)),
    }


def unjoined(rt: Runtime, _: int) -> dict[str, int | str]:
    """The same after work that never came back: the stream is lost, and new ones work."""
    rt.must("StreamBeginCapture", rt.stream, THREAD_LOCAL)
    rt.fork()
    ended = rt.call("StreamEndCapture", rt.stream, c.byref(c.c_void_p()))
    rt.must("EventRecord", rt.event2, rt.stream)
    rt.must("StreamWaitEvent", rt.blocking, rt.event2, 0)
    return {
        "ended": ended,
        "state": rt.state(rt.stream),
        "again": rt.call("StreamBeginCapture", rt.stream, THREAD_LOCAL),
        "drawn in": rt.state(rt.blocking),
        "elsewhere": captured(rt, rt.make("StreamCreateWithFlags", NON_BLOCKING)),
    }


def unjoined_ended_twice(rt: Runtime, _: int) -> dict[str, int | str]:
    """What helps nothing, and in relaxed mode crashes."""
    graph = _unjoined_graph(rt)
    return {"ended": rt.call("StreamEndCapture", rt.stream, c.byref(graph)), "state": rt.state(rt.stream)}


def unjoined_read(rt: Runtime, _: int) -> int:
    """What must not be done: the graph that came with the error is none."""
    return rt.nodes(_unjoined_graph(rt))


def _unjoined_graph(rt: Runtime) -> c.c_void_p:
    rt.must("StreamBeginCapture", rt.stream, THREAD_LOCAL)
    rt.launch(rt.stream)
    rt.fork()
    graph = c.c_void_p()
    rt.call("StreamEndCapture", rt.stream, c.byref(graph))
    return graph


def first_handle(rt: Runtime, elsewhere_too: int) -> dict[str, int | str]:
    """A library that allocates when it is first used, used before a capture or in one; from another thread with a 1."""
    blas = c.CDLL("libhipblaslt.so.1")
    before = blas.hipblasLtCreate(c.byref(c.c_void_p()))
    rt.must("StreamBeginCapture", rt.stream, THREAD_LOCAL)
    print(json.dumps({"before": before}), flush=True)  # noqa: T201 - the process may not live to tell more

    def create() -> int:
        return int(blas.hipblasLtCreate(c.byref(c.c_void_p())))

    return {"inside": rt.elsewhere(create) if elsewhere_too else create(), "state": rt.state(rt.stream)}


WALKS: dict[str, Callable[[Runtime, int], object]] = {
    "replay": replay,
    "after-refusal": after_refusal,
    "unjoined": unjoined,
    "unjoined-ended-twice": unjoined_ended_twice,
    "unjoined-read": unjoined_read,
    "first-handle": first_handle,
}


def main(library: str, kernel: str, walk: str, number: str = "0") -> None:
    """Go, and say what was seen."""
    rt = Runtime(c.CDLL(library), Path(kernel).read_bytes())
    print(json.dumps(WALKS[walk](rt, int(number))), flush=True)  # noqa: T201 - to the one who asked


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)
