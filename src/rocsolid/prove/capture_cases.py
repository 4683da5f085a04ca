"""Makes one API call during each capture, and prints what the runtime did with the call and with the capture.

    python3 cases.py LIBRARY KERNEL MODE CASE...

It runs in the rig's own Python and needs nothing else. Each case has its own streams and events. After a case that leaves a
stream capturing, the process ends, since later results could not be trusted; the caller starts a new process for the rest.
It ends with `os._exit`: ROCr's shutdown calls functions that the model of a chip does not have.

Cases use HIP's names without the prefix `hip`. With CUDA's library the same cases use CUDA's names for the same calls; arguments
and error numbers are the same in both.
"""

import ctypes as c
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MODES = ("global", "thread_local", "relaxed")
STATES = ("none", "active", "invalidated")
TO_HOST, TO_DEVICE, ON_DEVICE = 2, 1, 3
NON_BLOCKING, NO_TIMING = 1, 2
BYTES = 4096
# Names that are not just `cuda` and the same name; names that begin with `cu` alone are the driver's.
CUDA_NAMES = {
    "Init": "cudaSetDevice",
    "HostMalloc": "cudaHostAlloc",
    "HostFree": "cudaFreeHost",
    "ModuleLoadData": "cuModuleLoadData",
    "ModuleGetFunction": "cuModuleGetFunction",
    "ModuleLaunchKernel": "cuLaunchKernel",
}


class Runtime:
    """The library, and what a case needs created before the capture."""

    def __init__(self, library: c.CDLL, kernel: bytes) -> None:
        self.library = library
        self.driver = None if hasattr(library, "hipInit") else c.CDLL("libcuda.so.1")
        self.thread = ThreadPoolExecutor(1)
        self.must("Init", 0)
        self.elsewhere(lambda: self.must("Init", 0))  # CUDA's driver refuses a thread that never chose a device
        self.stream, self.other, self.blocking = (
            self.make("StreamCreateWithFlags", f) for f in (NON_BLOCKING, NON_BLOCKING, 0)
        )
        self.memory, self.spare = self.make("Malloc", c.c_size_t(1 << 20)), self.make("Malloc", c.c_size_t(1 << 20))
        self.pinned = self.make("HostMalloc", c.c_size_t(BYTES), 0)
        self.pageable = c.create_string_buffer(2 * BYTES)
        self.image = c.create_string_buffer(kernel)
        self.module = self.make("ModuleLoadData", self.image)
        self.function = self.make("ModuleGetFunction", self.module, b"touch")
        self.old, self.older = self.make("EventCreateWithFlags", 0), self.make("EventCreateWithFlags", 0)
        self.event, self.event2 = (self.make("EventCreateWithFlags", NO_TIMING) for _ in range(2))
        for event in (self.older, self.old):
            self.must("EventRecord", event, self.other)
        self.pool = self.make("DeviceGetDefaultMemPool", 0)
        self.graph = self._graph()
        self.made = self.make("GraphInstantiate", self.graph, None, None, c.c_size_t(0))
        self.callback = c.CFUNCTYPE(None, c.c_void_p)(lambda _: None)
        self.old_callback = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_void_p)(lambda *_: None)
        self.must("DeviceSynchronize")

    def call(self, name: str, *args: Any) -> int:
        """Make a call, and return its error number."""
        if self.driver is None:
            return int(getattr(self.library, f"hip{name}")(*args))
        spelled = CUDA_NAMES.get(name, f"cuda{name}")
        return int(getattr(self.library if spelled.startswith("cuda") else self.driver, spelled)(*args))

    def must(self, name: str, *args: Any) -> None:
        """Make a call that must succeed."""
        error = self.call(name, *args)
        if error:
            sys.exit(f"{name} returned {error}, it must succeed")

    def elsewhere(self, work: Callable[[], Any]) -> Any:
        """Run work in a thread that was started before the capture, and return its result."""
        return self.thread.submit(work).result()

    def make(self, name: str, *args: Any) -> c.c_void_p:
        """The object that a call returns through its first argument."""
        made = c.c_void_p()
        self.must(name, c.byref(made), *args)
        return made

    def launch(self, stream: c.c_void_p | None) -> int:
        """Launch the kernel on a stream."""
        values = [c.c_uint64(self.memory.value or 0), c.c_uint64(0), c.c_uint64(0)]
        pointers = (c.c_void_p * 3)(*(c.cast(c.pointer(value), c.c_void_p) for value in values))
        return self.call("ModuleLaunchKernel", self.function, 1, 1, 1, 256, 1, 1, 0, stream, pointers, None)

    def fork(self) -> int:
        """The other stream joins the capture and launches a kernel."""
        return (
            self.call("EventRecord", self.event, self.stream)
            or self.call("StreamWaitEvent", self.other, self.event, 0)
            or self.launch(self.other)
        )

    def join(self) -> int:
        """The capturing stream waits for the other one."""
        return self.call("EventRecord", self.event2, self.other) or self.call(
            "StreamWaitEvent", self.stream, self.event2, 0
        )

    def state(self, stream: c.c_void_p) -> str:
        """Whether a stream is capturing."""
        state = c.c_int()
        self.call("StreamIsCapturing", stream, c.byref(state))
        return STATES[state.value]

    def nodes(self, graph: c.c_void_p) -> int:
        """How many nodes a graph has."""
        count = c.c_size_t()
        self.must("GraphGetNodes", graph, None, c.byref(count))
        return count.value

    def _graph(self) -> c.c_void_p:
        self.must("StreamBeginCapture", self.stream, 1)
        self.launch(self.stream)
        return self.make_last("StreamEndCapture", self.stream)

    def make_last(self, name: str, *args: Any) -> c.c_void_p:
        """The object that a call returns through its last argument."""
        made = c.c_void_p()
        self.must(name, *args, c.byref(made))
        return made


def cases(rt: Runtime, mode: int) -> dict[str, Callable[[], int]]:
    """Every case of the table: one call, or a few that belong together."""
    out, size, count = c.c_void_p(), c.c_size_t(BYTES), c.c_size_t(64)
    free, total, ms, number = c.c_size_t(), c.c_size_t(), c.c_float(), c.c_int()
    new, call = c.byref(out), rt.call
    attributes = c.create_string_buffer(256)
    return {
        "nothing": lambda: 0,
        "malloc": lambda: call("Malloc", new, size),
        "free": lambda: call("Free", rt.spare),
        "host-malloc": lambda: call("HostMalloc", new, size, 0),
        "host-free": lambda: call("HostFree", rt.pinned),
        "host-register": lambda: call("HostRegister", rt.pageable, size, 0),
        "malloc-async": lambda: call("MallocAsync", new, size, rt.stream),
        "free-async": lambda: call("MallocAsync", new, size, rt.stream) or call("FreeAsync", out, rt.stream),
        "mem-get-info": lambda: call("MemGetInfo", c.byref(free), c.byref(total)),
        "pool-trim": lambda: call("MemPoolTrimTo", rt.pool, c.c_size_t(0)),
        "pointer-attributes": lambda: call("PointerGetAttributes", attributes, rt.memory),
        "memcpy": lambda: call("Memcpy", rt.pageable, rt.memory, count, TO_HOST),
        "memcpy-to-pageable": lambda: call("MemcpyAsync", rt.pageable, rt.memory, count, TO_HOST, rt.stream),
        "memcpy-to-pinned": lambda: call("MemcpyAsync", rt.pinned, rt.memory, count, TO_HOST, rt.stream),
        "memcpy-from-pageable": lambda: call("MemcpyAsync", rt.memory, rt.pageable, count, TO_DEVICE, rt.stream),
        "memcpy-default-stream": lambda: call("MemcpyAsync", rt.memory, rt.spare, count, ON_DEVICE, None),
        "memset": lambda: call("Memset", rt.memory, 0, count),
        "memset-async": lambda: call("MemsetAsync", rt.memory, 0, count, rt.stream),
        "memset-default-stream": lambda: call("MemsetAsync", rt.memory, 0, count, None),
        "stream-synchronize": lambda: call("StreamSynchronize", rt.stream),
        "stream-synchronize-other": lambda: call("StreamSynchronize", rt.other),
        "device-synchronize": lambda: call("DeviceSynchronize"),
        "stream-query": lambda: call("StreamQuery", rt.stream),
        "stream-query-other": lambda: call("StreamQuery", rt.other),
        "event-query-old": lambda: call("EventQuery", rt.old),
        "event-query-captured": lambda: call("EventRecord", rt.event, rt.stream) or call("EventQuery", rt.event),
        "event-synchronize-old": lambda: call("EventSynchronize", rt.old),
        "event-synchronize-captured": lambda: (
            call("EventRecord", rt.event, rt.stream) or call("EventSynchronize", rt.event)
        ),
        "event-elapsed-old": lambda: call("EventElapsedTime", c.byref(ms), rt.older, rt.old),
        "event-record-other": lambda: call("EventRecord", rt.event, rt.other),
        "launch-default-stream": lambda: rt.launch(None),
        "launch-blocking-stream": lambda: rt.launch(rt.blocking),
        "launch-other-stream": lambda: rt.launch(rt.other),
        "fork-unjoined": rt.fork,
        "fork-joined": lambda: rt.fork() or rt.join(),
        "wait-uncaptured-event": lambda: (
            call("EventRecord", rt.event, rt.other) or call("StreamWaitEvent", rt.stream, rt.event, 0)
        ),
        "wait-other-capture": lambda: (
            call("StreamBeginCapture", rt.other, mode)
            or call("EventRecord", rt.event, rt.other)
            or call("StreamWaitEvent", rt.stream, rt.event, 0)
        ),
        "begin-twice": lambda: call("StreamBeginCapture", rt.stream, mode),
        "graph-instantiate": lambda: call("GraphInstantiate", new, rt.graph, None, None, c.c_size_t(0)),
        "graph-launch": lambda: call("GraphLaunch", rt.made, rt.stream),
        "module-load": lambda: call("ModuleLoadData", new, rt.image),
        "event-create": lambda: call("EventCreateWithFlags", new, NO_TIMING),
        "event-destroy": lambda: call("EventDestroy", rt.old),
        "stream-create": lambda: call("StreamCreateWithFlags", new, NON_BLOCKING),
        "stream-destroy": lambda: call("StreamDestroy", rt.blocking),
        "set-device": lambda: call("SetDevice", 0),
        "device-attribute": lambda: call("DeviceGetAttribute", c.byref(number), 1, 0),
        "launch-host-func": lambda: call("LaunchHostFunc", rt.stream, rt.callback, None),
        "stream-add-callback": lambda: call("StreamAddCallback", rt.stream, rt.old_callback, None, 0),
    }


def tried(rt: Runtime, mode: int, case: str) -> dict[str, Any]:
    """Capture one kernel and the case; two cases are about the end of the capture itself."""
    rt.must("StreamBeginCapture", rt.stream, mode)
    rt.launch(rt.stream)
    seen: dict[str, Any] = {"case": case}
    graph = c.c_void_p()
    end = c.byref(graph)
    if case == "thread-end":
        seen["returned"] = rt.elsewhere(lambda: rt.call("StreamEndCapture", rt.stream, end))
    elif case == "end-other-stream":
        seen["returned"] = rt.call("StreamEndCapture", rt.other, end)
    else:
        work = cases(rt, mode)[case.removeprefix("thread-")]
        seen["returned"] = rt.elsewhere(work) if case.startswith("thread-") else work()
    seen["state"] = rt.state(rt.stream)
    if seen["state"] != "none":
        seen["ended"] = rt.call("StreamEndCapture", rt.stream, end)
    if not seen.get("ended") and graph.value:
        seen["nodes"] = rt.nodes(graph)
    seen["state after"] = rt.state(rt.stream)
    seen["begins again"] = rt.call("StreamBeginCapture", rt.stream, mode)
    if not seen["begins again"]:
        rt.launch(rt.stream)
        seen["ends again"] = rt.call("StreamEndCapture", rt.stream, end)
    return seen


def main(library: str, kernel: str, mode: str, *wanted: str) -> None:
    """Run each case, and print its result at once."""
    loaded = c.CDLL(library)
    image = Path(kernel).read_bytes()
    for case in wanted:
        rt = Runtime(loaded, image)
        print(json.dumps(tried(rt, MODES.index(mode), case)), flush=True)  # noqa: T201 - read by the parent process
        rt.thread.shutdown()
        if (
            rt.state(rt.stream) == "active" or rt.state(rt.other) != "none"
        ):  # on CUDA a failed capture must be ended, too
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)
