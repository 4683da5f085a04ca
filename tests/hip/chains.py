"""Scenarios of several calls, each in its own process: large graphs, and what happens after a failed capture.

python3 chains.py LIBRARY KERNEL SCENARIO [NUMBER]
"""

import ctypes as c
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from rocsolid.prove.capture_cases import MODES, NON_BLOCKING, Runtime

THREAD_LOCAL = MODES.index("thread_local")


def captured(rt: Runtime, stream: c.c_void_p, launches: int = 1) -> int:
    """Capture kernels on a stream. Returns the first error, or the number of nodes as a negative number."""
    graph = c.c_void_p()
    error = rt.call("StreamBeginCapture", stream, THREAD_LOCAL)
    for _ in range(launches):
        error = error or rt.launch(stream)
    return error or rt.call("StreamEndCapture", stream, c.byref(graph)) or -rt.nodes(graph)


def replay(rt: Runtime, number: int) -> dict[str, int]:
    """How many kernels reach the chip when `number` kernels were captured."""
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
    """What `rs.capture` does after a failure: end the capture once, then capture successfully on the same stream."""
    rt.must("StreamBeginCapture", rt.stream, THREAD_LOCAL)
    refused = rt.call("StreamSynchronize", rt.stream)
    ended = rt.call("StreamEndCapture", rt.stream, c.byref(c.c_void_p()))
    state = rt.state(rt.stream)
    again = captured(rt, rt.stream)
    return {
        "refused": refused,
        "ended": ended,
        "state": state,
        "captured again": again,
        "state at last": rt.state(rt.stream),
        "waits": rt.call("StreamSynchronize", rt.stream),
        "elsewhere": captured(rt, rt.make("StreamCreateWithFlags", NON_BLOCKING)),
    }


def unjoined(rt: Runtime, _: int) -> dict[str, int | str]:
    """The same after unjoined work: the stream stays unusable, and new streams work."""
    rt.must("StreamBeginCapture", rt.stream, THREAD_LOCAL)
    rt.fork()
    ended = rt.call("StreamEndCapture", rt.stream, c.byref(c.c_void_p()))
    rt.must("EventRecord", rt.event2, rt.stream)
    rt.must("StreamWaitEvent", rt.blocking, rt.event2, 0)
    return {
        "ended": ended,
        "state": rt.state(rt.stream),
        "again": rt.call("StreamBeginCapture", rt.stream, THREAD_LOCAL),
        "joined by waiting": rt.state(rt.blocking),
        "elsewhere": captured(rt, rt.make("StreamCreateWithFlags", NON_BLOCKING)),
    }


def unjoined_ended_twice(rt: Runtime, _: int) -> dict[str, int | str]:
    """End such a capture twice: it does not help, and crashes in relaxed mode."""
    graph = _unjoined_graph(rt)
    return {"ended": rt.call("StreamEndCapture", rt.stream, c.byref(graph)), "state": rt.state(rt.stream)}


def unjoined_read(rt: Runtime, _: int) -> int:
    """Read the graph that came with the error: it is not valid, and this crashes."""
    return rt.nodes(_unjoined_graph(rt))


def _unjoined_graph(rt: Runtime) -> c.c_void_p:
    rt.must("StreamBeginCapture", rt.stream, THREAD_LOCAL)
    rt.launch(rt.stream)
    rt.fork()
    graph = c.c_void_p()
    rt.call("StreamEndCapture", rt.stream, c.byref(graph))
    return graph


def first_handle(rt: Runtime, elsewhere_too: int) -> dict[str, int | str]:
    """Create a library handle before and during a capture; with 1, from another thread."""
    blas = c.CDLL("libhipblaslt.so.1")
    before = blas.hipblasLtCreate(c.byref(c.c_void_p()))
    rt.must("StreamBeginCapture", rt.stream, THREAD_LOCAL)
    print(json.dumps({"before": before}), flush=True)  # noqa: T201 - the process may die in the next step

    def create() -> int:
        return int(blas.hipblasLtCreate(c.byref(c.c_void_p())))

    return {"inside": rt.elsewhere(create) if elsewhere_too else create(), "state": rt.state(rt.stream)}


SCENARIOS: dict[str, Callable[[Runtime, int], object]] = {
    "replay": replay,
    "after-refusal": after_refusal,
    "unjoined": unjoined,
    "unjoined-ended-twice": unjoined_ended_twice,
    "unjoined-read": unjoined_read,
    "first-handle": first_handle,
}


def main(library: str, kernel: str, scenario: str, number: str = "0") -> None:
    """Run a scenario, and print its result."""
    rt = Runtime(c.CDLL(library), Path(kernel).read_bytes())
    print(json.dumps(SCENARIOS[scenario](rt, int(number))), flush=True)  # noqa: T201 - read by the parent process


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)
