"""The capture-rule table: what HIP and CUDA do with each API call during a capture.

The rows are for a non-blocking stream, which is what torch creates. Each cell has one word per mode (global, thread_local,
relaxed), or one word for all three:

    node     becomes part of the graph
    done     runs at once and is not part of the graph
    left     succeeds, but is silently missing from the graph
    900      fails with this error, and the capture fails
    kept401  fails with this error, and the capture continues
    end904   the end of the capture fails with this error
    ?        not tested, and not documented

HIP's columns were measured with the real runtimes on a simulated GPU; `make test-hip` measures them again. CUDA's were measured
with CUDA 13.0 on an H200; scripts/measure_capture_rules.py measures them again, with the same cases.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from rocsolid.model.capture_report import Reason
from rocsolid.model.capture_rule import Behavior, CaptureMode, CaptureRule, Outcome, Runtime
from rocsolid.model.evidence import Evidence, measured, source
from rocsolid.model.platform import Platform
from rocsolid.model.release import Span, compare, parts

# From this release on torch allocates pinned memory during a capture in relaxed mode.
PINS_IN_RELAXED_MODE: Final = Span("2.11")

_WORDS = {
    "node": Outcome.RECORDED,
    "done": Outcome.RUNS_NOW,
    "left": Outcome.LEFT_OUT,
    "?": Outcome.UNKNOWN,
}
_VERBS = {
    Outcome.RECORDED: "add{s} it to the graph",
    Outcome.RUNS_NOW: "allow{s} it",
    Outcome.LEFT_OUT: "accept{s} it, but the graph does not contain it",
    Outcome.CAPTURE_FAILS: "refuse{s} it with error {error}, and the capture fails",
    Outcome.CALL_FAILS: "refuse{s} it with error {error}, and the capture continues",
    Outcome.FAILS_AT_END: "report{s} error {error} at the end, and the capture fails",
    Outcome.UNKNOWN: "{was} not tested",
}
_REFUSALS = {"end": Outcome.FAILS_AT_END, "kept": Outcome.CALL_FAILS}
_BEFORE = "call it before the capture; a warm-up run on the same stream and thread is enough"
_NO_WAIT = "synchronize after the replay, outside the captured function"
_OWN_STREAM = "use the current stream (torch.cuda.current_stream()) and the asynchronous call"
_KEEP_OFF = "do not use the GPU from other threads during a capture, or wrap their calls in `with rs.pause_captures():`"

BACKING: dict[Runtime, tuple[Evidence, ...]] = {
    runtime: (
        measured(
            "capture-rules-on-hip",
            f"Every cell was measured with {runtime.label} on a simulated GPU: Debian's build, one chip (gfx942), and kernels that compute nothing.",
        ),
    )
    for runtime in (Runtime.HIP_6_4, Runtime.HIP_7_2)
}
BACKING[Runtime.CUDA] = (
    measured(
        "capture-rules-on-cuda",
        "Every cell was measured with CUDA 13.0 on an H200 with driver 580.159.04; kernels were launched with the driver's cuLaunchKernel.",
    ),
    source(
        "CUDA 13.0 cuda_runtime_api.h and driver_types.h",
        "Calls that are unsafe in a capture, the three modes, the error codes, and that cudaStreamAddCallback is not supported.",
    ),
    source(
        "CUDA C++ Programming Guide, prohibited and unhandled operations of stream capture",
        "No stream, event or device that takes part in a capture may be waited for or queried; the legacy stream must not be used together with blocking streams.",
    ),
    source(
        "torch 2.11 and later, aten/src/ATen/cuda/CachingHostAllocator.cpp and torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        "In a capture torch allocates pinned memory in relaxed mode and queries no event; its watchdog queries them in thread_local mode.",
    ),
)


def _cell(word: str) -> Behavior:
    if word in _WORDS:
        return Behavior(outcome=_WORDS[word])
    outcome = next((refusal for start, refusal in _REFUSALS.items() if word.startswith(start)), Outcome.CAPTURE_FAILS)
    return Behavior(outcome=outcome, error=int(word.lstrip("endkpt")))


def _cells(words: str) -> dict[CaptureMode, Behavior]:
    given = words.split()
    return {mode: _cell(given[number % len(given)]) for number, mode in enumerate(CaptureMode)}


def _rule(  # noqa: PLR0913 - the columns of a table
    case: str,
    call: str,
    situation: str = "",
    *,
    hip: str,
    hip72: str = "",
    cuda: str = "?",
    cuda_call: str = "",
    torch: tuple[str, ...] = (),
    cause: Reason = Reason.RUNTIME_CALL,
    fix: str = _BEFORE,
) -> CaptureRule:
    """One row; where the two HIP releases agree, `hip` is for both."""
    other = case.startswith("thread-")
    return CaptureRule(
        case=case,
        call=call,
        cuda_call=cuda_call or call.replace("hip", "cuda", 1),
        situation=f"{situation}{', ' if situation else ''}from another thread" if other else situation,
        behaviors={
            Runtime.HIP_6_4: _cells(hip),
            Runtime.HIP_7_2: _cells(hip72 or hip),
            Runtime.CUDA: _cells(cuda),
        },
        cause=Reason.ANOTHER_THREAD if other else cause,
        fix=_KEEP_OFF if other else fix,
        torch=torch,
        other_thread=other,
    )


_R = Reason
_EVENT = "record and query events outside the captured function; inside, order streams with wait_stream or wait_event"

CAPTURE_RULES: tuple[CaptureRule, ...] = (
    # Memory.
    _rule("malloc", "hipMalloc", hip="900 900 done", cuda="900 900 done"),
    _rule("free", "hipFree", "of device memory", hip="900 900 done", cuda="900 900 done"),
    _rule(
        "host-malloc", "hipHostMalloc", hip="900 900 done", cuda="900 900 done", cuda_call="cudaHostAlloc",
        torch=("torch.Tensor.pin_memory",),
        fix="pin the memory before the capture; torch 2.11 and later do this in relaxed mode, which is allowed",
    ),
    _rule("host-free", "hipHostFree", hip="900 900 done", cuda="900 900 done", cuda_call="cudaFreeHost"),
    _rule("host-register", "hipHostRegister", hip="900 900 done", cuda="900 900 done"),
    _rule("malloc-async", "hipMallocAsync", hip="node", cuda="node"),
    _rule("free-async", "hipFreeAsync", "of memory that the capture allocated", hip="node", cuda="node"),
    _rule("pool-trim", "hipMemPoolTrimTo", hip="done", cuda="900 900 done"),
    _rule("pointer-attributes", "hipPointerGetAttributes", hip="done", cuda="done"),
    _rule("mem-get-info", "hipMemGetInfo", hip="done", cuda="done", torch=("torch.cuda.mem_get_info",)),
    # Copies.
    _rule("memcpy", "hipMemcpy", "to the host, on the default stream", hip="906", cuda="left", cause=_R.DEFAULT_STREAM, fix=_OWN_STREAM),
    _rule("memcpy-to-pageable", "hipMemcpyAsync", "to pageable host memory", hip="node", cuda="node"),
    _rule("memcpy-to-pinned", "hipMemcpyAsync", "to pinned host memory", hip="node", cuda="node"),
    _rule("memcpy-from-pageable", "hipMemcpyAsync", "from pageable host memory", hip="node", cuda="node"),
    _rule(
        "memcpy-default-stream", "hipMemcpyAsync", "on the default stream", hip="left", cuda="left",
        cause=_R.DEFAULT_STREAM, fix=_OWN_STREAM,
    ),
    _rule("memset", "hipMemset", "on the default stream", hip="906", cuda="left", cause=_R.DEFAULT_STREAM, fix=_OWN_STREAM),
    _rule("memset-async", "hipMemsetAsync", hip="node", cuda="node"),
    _rule(
        "memset-default-stream", "hipMemsetAsync", "on the default stream", hip="left", cuda="left",
        cause=_R.DEFAULT_STREAM, fix=_OWN_STREAM,
    ),
    # Synchronize and query.
    _rule(
        "stream-synchronize", "hipStreamSynchronize", "of the capturing stream", hip="900", cuda="900",
        torch=("torch.cuda.Stream.synchronize",), cause=_R.HOST_SYNC, fix=_NO_WAIT,
    ),
    _rule(
        "stream-synchronize-other", "hipStreamSynchronize", "of a stream that is not capturing", hip="900 900 done", cuda="900 900 done",
        torch=("torch.cuda.Stream.synchronize",), cause=_R.HOST_SYNC, fix=_NO_WAIT,
    ),
    _rule(
        "device-synchronize", "hipDeviceSynchronize", hip="900", cuda="900",
        torch=("torch.cuda.synchronize",), cause=_R.HOST_SYNC, fix=_NO_WAIT,
    ),
    _rule(
        "stream-query", "hipStreamQuery", "of the capturing stream", hip="900", cuda="900",
        torch=("torch.cuda.Stream.query",), cause=_R.HOST_SYNC, fix=_NO_WAIT,
    ),
    _rule(
        "stream-query-other", "hipStreamQuery", "of a stream that is not capturing", hip="900 900 done", cuda="900 900 done",
        torch=("torch.cuda.Stream.query",), cause=_R.HOST_SYNC, fix=_NO_WAIT,
    ),
    _rule(
        "event-query-old", "hipEventQuery", "of an event recorded before the capture", hip="done", hip72="900 900 done",
        cuda="900 900 done", torch=("torch.cuda.Event.query",), cause=_R.EVENT, fix=_EVENT,
    ),
    _rule(
        "event-query-captured", "hipEventQuery", "of an event recorded in the capture", hip="907", cuda="907",
        torch=("torch.cuda.Event.query",), cause=_R.EVENT, fix=_EVENT,
    ),
    _rule(
        "event-synchronize-old", "hipEventSynchronize", "of an event recorded before the capture", hip="900 900 done", cuda="900 900 done",
        torch=("torch.cuda.Event.synchronize",), cause=_R.EVENT, fix=_EVENT,
    ),
    _rule(
        "event-synchronize-captured", "hipEventSynchronize", "of an event recorded in the capture", hip="907", cuda="907",
        torch=("torch.cuda.Event.synchronize",), cause=_R.EVENT, fix=_EVENT,
    ),
    _rule("event-elapsed-old", "hipEventElapsedTime", "of events recorded before the capture", hip="done", cuda="done"),
    _rule("event-record-other", "hipEventRecord", "on a stream outside the capture", hip="done", cuda="done", torch=("torch.cuda.Event.record",)),
    # Work on other streams.
    _rule(
        "launch-default-stream", "hipModuleLaunchKernel", "on the default stream", hip="left", cuda="left",
        cuda_call="cudaLaunchKernel", cause=_R.DEFAULT_STREAM, fix=_OWN_STREAM,
    ),
    _rule(
        "launch-blocking-stream", "hipModuleLaunchKernel", "on a blocking stream outside the capture", hip="left",
        cuda="left", cuda_call="cudaLaunchKernel", fix=_OWN_STREAM,
    ),
    _rule(
        "launch-other-stream", "hipModuleLaunchKernel", "on another stream outside the capture", hip="left",
        cuda="left", cuda_call="cudaLaunchKernel", fix=_OWN_STREAM,
    ),
    _rule(
        "fork-unjoined", "hipStreamWaitEvent", "by a second stream that is not joined back", hip="end904",
        cuda="end904", torch=("torch.cuda.Stream.wait_stream",), cause=_R.UNJOINED,
        fix="end with torch.cuda.current_stream().wait_stream(side) on the stream that forked",
    ),
    _rule(
        "fork-joined", "hipStreamWaitEvent", "by a second stream that is joined back", hip="node", cuda="node",
        torch=("torch.cuda.Stream.wait_stream",),
    ),
    _rule(
        "wait-uncaptured-event", "hipStreamWaitEvent", "for an event of a stream outside the capture", hip="left",
        cuda="905", torch=("torch.cuda.Stream.wait_event",), cause=_R.UNCAPTURED_EVENT,
        fix="wait for it before the call; HIP silently drops the wait, and the replay runs too early",
    ),
    _rule(
        "wait-other-capture", "hipStreamWaitEvent", "for an event of another capture", hip="left", cuda="902",
        torch=("torch.cuda.Stream.wait_event",), cause=_R.UNCAPTURED_EVENT,
        fix="capture one function at a time, and do not let one wait for the other",
    ),
    # Captures and graphs.
    _rule(
        "begin-twice", "hipStreamBeginCapture", "on a stream that is already capturing", hip="kept401", cuda="kept401",
        torch=("torch.cuda.graph",), fix="capture the inner function as part of the outer one",
    ),
    _rule(
        "end-other-stream", "hipStreamEndCapture", "on a different stream than it began on", hip="kept401", cuda="kept401",
        torch=("torch.cuda.graph",), fix="restore the current stream before the capture ends",
    ),
    _rule("graph-instantiate", "hipGraphInstantiate", hip="done", cuda="900 900 done"),
    _rule(
        "graph-launch", "hipGraphLaunch", "on the capturing stream", hip="left", cuda="900", torch=("torch.cuda.CUDAGraph.replay",),
        fix="replay graphs outside the captured function",
    ),
    # Create and load.
    _rule("module-load", "hipModuleLoadData", hip="done", cuda="done", cuda_call="cuModuleLoadData"),
    _rule("set-device", "hipSetDevice", "to the same device", hip="done", cuda="done", torch=("torch.cuda.set_device",)),
    _rule("device-attribute", "hipDeviceGetAttribute", hip="done", cuda="done"),
    _rule("event-destroy", "hipEventDestroy", "of an event recorded before the capture", hip="done", cuda="done"),
    _rule("stream-destroy", "hipStreamDestroy", "of a stream that is not capturing", hip="done", cuda="done"),
    _rule("event-create", "hipEventCreateWithFlags", hip="done", cuda="done", torch=("torch.cuda.Event",)),
    _rule("stream-create", "hipStreamCreateWithFlags", hip="done", cuda="done", torch=("torch.cuda.Stream",)),
    # Host callbacks.
    _rule("launch-host-func", "hipLaunchHostFunc", hip="node", cuda="node"),
    _rule(
        "stream-add-callback", "hipStreamAddCallback", hip="left", hip72="900", cuda="900",
        fix="call it after the replay, outside the captured function; hipLaunchHostFunc can be captured",
    ),
    # The same from a thread that is not capturing.
    _rule("thread-malloc", "hipMalloc", hip="900 done done", cuda="900 done done"),
    _rule("thread-free", "hipFree", "of device memory", hip="900 done done", cuda="900 done done"),
    _rule("thread-host-malloc", "hipHostMalloc", hip="900 done done", cuda="900 done done", cuda_call="cudaHostAlloc", torch=("torch.Tensor.pin_memory",)),
    _rule("thread-host-free", "hipHostFree", hip="900 done done", cuda="900 done done", cuda_call="cudaFreeHost"),
    _rule(
        "thread-event-query-captured", "hipEventQuery", "of an event recorded in the capture", hip="907", cuda="907",
        torch=("torch.cuda.Event.query",),
    ),
    _rule(
        "thread-event-synchronize-captured", "hipEventSynchronize", "of an event recorded in the capture", hip="907",
        cuda="907", torch=("torch.cuda.Event.synchronize",),
    ),
    _rule(
        "thread-event-synchronize-old", "hipEventSynchronize", "of an event recorded before the capture",
        hip="900 done done", cuda="900 done done", torch=("torch.cuda.Event.synchronize",),
    ),
    _rule(
        "thread-stream-query", "hipStreamQuery", "of the capturing stream", hip="900", cuda="900",
        torch=("torch.cuda.Stream.query",),
    ),
    _rule(
        "thread-stream-synchronize", "hipStreamSynchronize", "of the capturing stream", hip="900", cuda="900",
        torch=("torch.cuda.Stream.synchronize",),
    ),
    _rule(
        "thread-event-query-old", "hipEventQuery", "of an event recorded before the capture", hip="done",
        hip72="900 done done", cuda="900 done done", torch=("torch.cuda.Event.query",),
    ),
    _rule(
        "thread-stream-query-other", "hipStreamQuery", "of a stream that is not capturing", hip="900 done done", cuda="900 done done",
        torch=("torch.cuda.Stream.query",),
    ),
    _rule("thread-device-synchronize", "hipDeviceSynchronize", hip="900", cuda="900", torch=("torch.cuda.synchronize",)),
    _rule(
        "thread-stream-synchronize-other", "hipStreamSynchronize", "of a stream that is not capturing",
        hip="900 done done", cuda="900 done done", torch=("torch.cuda.Stream.synchronize",),
    ),
    _rule("thread-memcpy", "hipMemcpy", "to the host, on the default stream", hip="906", cuda="left"),
    _rule("thread-memset", "hipMemset", "on the default stream", hip="906", cuda="left"),
    _rule("thread-memcpy-default-stream", "hipMemcpyAsync", "on the default stream", hip="left", cuda="left"),
    _rule("thread-end", "hipStreamEndCapture", hip="kept908 kept908 done", cuda="908 908 done", torch=("torch.cuda.graph",)),
    _rule(
        "thread-launch-other-stream", "hipModuleLaunchKernel", "on another stream outside the capture", hip="left",
        cuda="left", cuda_call="cudaLaunchKernel",
    ),
    _rule("thread-module-load", "hipModuleLoadData", hip="done", cuda="done", cuda_call="cuModuleLoadData"),
)  # fmt: skip


@cache
def _by_case() -> dict[str, CaptureRule]:
    return {rule.case: rule for rule in CAPTURE_RULES}


def capture_rule(case: str) -> CaptureRule:
    """The row of a case."""
    return _by_case()[case]


def find_rule(case: str) -> CaptureRule | None:
    """The row of a case; None when it was not tested."""
    return _by_case().get(case)


def rules_of(name: str) -> tuple[CaptureRule, ...]:
    """The rows of a call, by its HIP or CUDA name, or by the Python function that makes it."""
    return tuple(rule for rule in CAPTURE_RULES if name in (rule.call, rule.cuda_call, rule.case, *rule.torch))


def runtimes_on(platform: Platform, release: str) -> tuple[Runtime, ...]:
    """The runtimes whose rows apply to a machine: its own release, or both tested HIP releases when it is neither."""
    if platform is Platform.CUDA:
        return (Runtime.CUDA,)
    if platform is Platform.CPU:
        return ()
    of_hip = tuple(runtime for runtime in Runtime if runtime.is_hip)
    own = tuple(runtime for runtime in of_hip if parts(runtime.value.removeprefix("hip-")) == parts(release)[:2])
    return own or of_hip


def nearest_runtime(platform: Platform, release: str) -> Runtime:
    """The runtime to simulate for a machine."""
    older = compare(release, "7") < 0
    return Runtime.CUDA if platform is Platform.CUDA else Runtime.HIP_6_4 if older else Runtime.HIP_7_2


def describe_behavior(
    case: str, runtimes: Iterable[Runtime] = tuple(Runtime), mode: CaptureMode = CaptureMode.GLOBAL
) -> str:
    """One sentence, without a full stop: what the runtimes do with a call during a capture in this mode."""
    rule = capture_rule(case)
    same: dict[Behavior, list[Runtime]] = {}
    for runtime in runtimes:
        same.setdefault(rule.behavior(runtime, mode), []).append(runtime)
    text = "; ".join(_sentence(behavior, those) for behavior, those in same.items())
    return f"{rule.call} {rule.situation}".rstrip() + f": {text}"


def _sentence(behavior: Behavior, runtimes: Sequence[Runtime]) -> str:
    *most, last = [runtime.label for runtime in runtimes]
    verb = _VERBS[behavior.outcome].format(s="" if most else "s", was="were" if most else "was", error=behavior.error)
    return f"{', '.join(most)} and {last} {verb}" if most else f"{last} {verb}"
