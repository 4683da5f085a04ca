"""The capture-rule table: what HIP and CUDA do with each API call during a capture.

The rows are for a non-blocking stream, which is what torch creates. Each cell has one word per mode (global, thread_local,
relaxed), or one word for all three:

    node     becomes part of the graph
    done     runs immediately and is not part of the graph
    left     succeeds, but is silently missing from the graph
    900      fails with this error, and the capture fails
    kept401  fails with this error, and the capture continues
    end904   the end of the capture fails with this error
    ?        neither tested nor documented

HIP's columns were measured with the real runtimes on a simulated GPU; `make test-hip` measures them again. CUDA's column was
measured with CUDA 13.0 on an H200; scripts/measure_capture_rules.py measures it again, with the same calls.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from rocsolid.model.capture_report import Reason
from rocsolid.model.capture_rule import Behavior, CaptureMode, CaptureRule, Outcome, Runtime
from rocsolid.model.evidence import Evidence, measured, source
from rocsolid.model.platform import Platform
from rocsolid.model.release import Span, compare, parts

# The torch releases that allocate pinned memory in relaxed mode during a capture.
RELEASES_THAT_PIN_IN_RELAXED_MODE: Final = Span("2.11")

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
_CALL_EARLIER = "call it before the capture; a warm-up run on the same stream and thread is enough"
_SYNCHRONIZE_LATER = "synchronize after the replay, outside the captured function"
_CURRENT_STREAM = "use the current stream (torch.cuda.current_stream())"
_COPY_FIX = (
    "use the asynchronous copy (hipMemcpyAsync, cudaMemcpyAsync) on the current stream (torch.cuda.current_stream())"
)
_FILL_FIX = (
    "use the asynchronous fill (hipMemsetAsync, cudaMemsetAsync) on the current stream (torch.cuda.current_stream())"
)
_OTHER_THREADS_FIX = (
    "do not use the GPU from other threads during a capture, or wrap their calls in `with rs.pause_captures():`"
)

EVIDENCE_BY_RUNTIME: dict[Runtime, tuple[Evidence, ...]] = {
    runtime: (
        measured(
            "capture-rules-on-hip",
            f"The behavior of {runtime.label} was measured on a simulated GPU: Debian's build, one chip (gfx942), and kernels that compute nothing.",
        ),
    )
    for runtime in (Runtime.HIP_6_4, Runtime.HIP_7_2)
}
EVIDENCE_BY_RUNTIME[Runtime.CUDA] = (
    measured(
        "capture-rules-on-cuda",
        "The behavior of CUDA 13.0 was measured on an H200 with driver 580.159.04; kernels were launched with the driver's cuLaunchKernel.",
    ),
    source(
        "CUDA 13.0 cuda_runtime_api.h and driver_types.h",
        "The headers list the calls that are unsafe during a capture, the three modes and the error codes, and say that cudaStreamAddCallback is not supported.",
    ),
    source(
        "CUDA C++ Programming Guide, prohibited and unhandled operations of stream capture",
        "No stream, event or device that takes part in a capture may be waited for or queried; the legacy stream must not be used together with blocking streams.",
    ),
    source(
        "torch 2.11 and later, aten/src/ATen/cuda/CachingHostAllocator.cpp and torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        "During a capture, torch allocates pinned memory in relaxed mode and queries no event. The NCCL watchdog thread switches to thread_local mode when it queries events.",
    ),
)


def _cell(word: str) -> Behavior:
    if word in _WORDS:
        return Behavior(outcome=_WORDS[word])
    outcome = next((refusal for prefix, refusal in _REFUSALS.items() if word.startswith(prefix)), Outcome.CAPTURE_FAILS)
    return Behavior(outcome=outcome, error=int(word.lstrip("endkpt")))


def _cells(words: str) -> dict[CaptureMode, Behavior]:
    cells = [_cell(word) for word in words.split()]  # one per mode, or one for all modes
    return {mode: cells[index % len(cells)] for index, mode in enumerate(CaptureMode)}


def _rule(  # noqa: PLR0913 - the columns of a table
    rule_id: str,
    call: str,
    situation: str = "",
    *,
    hip: str,
    hip72: str = "",
    cuda: str = "?",
    cuda_call: str = "",
    torch_callers: tuple[str, ...] = (),
    cause: Reason = Reason.RUNTIME_CALL,
    fix: str = _CALL_EARLIER,
) -> CaptureRule:
    """One row of the table. `hip` is for both HIP releases unless `hip72` is given."""
    other_thread = rule_id.startswith("thread-")
    return CaptureRule(
        id=rule_id,
        call=call,
        cuda_call=cuda_call or call.replace("hip", "cuda", 1),
        situation=f"{situation}{', ' if situation else ''}from another thread" if other_thread else situation,
        behaviors={
            Runtime.HIP_6_4: _cells(hip),
            Runtime.HIP_7_2: _cells(hip72 or hip),
            Runtime.CUDA: _cells(cuda),
        },
        cause=Reason.ANOTHER_THREAD if other_thread else cause,
        fix=_OTHER_THREADS_FIX if other_thread else fix,
        torch_callers=torch_callers,
        other_thread=other_thread,
    )


_R = Reason
_EVENT_FIX = (
    "record and query events outside the captured function; inside, order streams with wait_stream or wait_event"
)

CAPTURE_RULES: tuple[CaptureRule, ...] = (
    # Memory.
    _rule("malloc", "hipMalloc", hip="900 900 done", cuda="900 900 done"),
    _rule("free", "hipFree", "of device memory", hip="900 900 done", cuda="900 900 done"),
    _rule(
        "host-malloc", "hipHostMalloc", hip="900 900 done", cuda="900 900 done", cuda_call="cudaHostAlloc",
        torch_callers=("torch.Tensor.pin_memory",),
        fix="pin the memory before the capture; torch 2.11 and later do this in relaxed mode, which is allowed",
    ),
    _rule("host-free", "hipHostFree", hip="900 900 done", cuda="900 900 done", cuda_call="cudaFreeHost"),
    _rule("host-register", "hipHostRegister", hip="900 900 done", cuda="900 900 done"),
    _rule("malloc-async", "hipMallocAsync", hip="node", cuda="node"),
    _rule("free-async", "hipFreeAsync", "of memory that the capture allocated", hip="node", cuda="node"),
    _rule("pool-trim", "hipMemPoolTrimTo", hip="done", cuda="900 900 done"),
    _rule("pointer-attributes", "hipPointerGetAttributes", hip="done", cuda="done"),
    _rule("mem-get-info", "hipMemGetInfo", hip="done", cuda="done", torch_callers=("torch.cuda.mem_get_info",)),
    # Copies.
    _rule("memcpy", "hipMemcpy", "to the host, on the default stream", hip="906", cuda="left", cause=_R.DEFAULT_STREAM, fix=_COPY_FIX),
    _rule("memcpy-to-pageable", "hipMemcpyAsync", "to pageable host memory", hip="node", cuda="node"),
    _rule("memcpy-to-pinned", "hipMemcpyAsync", "to pinned host memory", hip="node", cuda="node"),
    _rule("memcpy-from-pageable", "hipMemcpyAsync", "from pageable host memory", hip="node", cuda="node"),
    _rule(
        "memcpy-default-stream", "hipMemcpyAsync", "on the default stream", hip="left", cuda="left",
        cause=_R.DEFAULT_STREAM, fix=_CURRENT_STREAM,
    ),
    _rule("memset", "hipMemset", "on the default stream", hip="906", cuda="left", cause=_R.DEFAULT_STREAM, fix=_FILL_FIX),
    _rule("memset-async", "hipMemsetAsync", hip="node", cuda="node"),
    _rule(
        "memset-default-stream", "hipMemsetAsync", "on the default stream", hip="left", cuda="left",
        cause=_R.DEFAULT_STREAM, fix=_CURRENT_STREAM,
    ),
    # Synchronize and query.
    _rule(
        "stream-synchronize", "hipStreamSynchronize", "of the capturing stream", hip="900", cuda="900",
        torch_callers=("torch.cuda.Stream.synchronize",), cause=_R.HOST_SYNC, fix=_SYNCHRONIZE_LATER,
    ),
    _rule(
        "stream-synchronize-other", "hipStreamSynchronize", "of a stream that is not capturing", hip="900 900 done", cuda="900 900 done",
        torch_callers=("torch.cuda.Stream.synchronize",), cause=_R.HOST_SYNC, fix=_SYNCHRONIZE_LATER,
    ),
    _rule(
        "device-synchronize", "hipDeviceSynchronize", hip="900", cuda="900",
        torch_callers=("torch.cuda.synchronize",), cause=_R.HOST_SYNC, fix=_SYNCHRONIZE_LATER,
    ),
    _rule(
        "stream-query", "hipStreamQuery", "of the capturing stream", hip="900", cuda="900",
        torch_callers=("torch.cuda.Stream.query",), cause=_R.HOST_SYNC, fix=_SYNCHRONIZE_LATER,
    ),
    _rule(
        "stream-query-other", "hipStreamQuery", "of a stream that is not capturing", hip="900 900 done", cuda="900 900 done",
        torch_callers=("torch.cuda.Stream.query",), cause=_R.HOST_SYNC, fix=_SYNCHRONIZE_LATER,
    ),
    _rule(
        "event-query-old", "hipEventQuery", "of an event recorded before the capture", hip="done", hip72="900 900 done",
        cuda="900 900 done", torch_callers=("torch.cuda.Event.query",), cause=_R.EVENT_QUERIED, fix=_EVENT_FIX,
    ),
    _rule(
        "event-query-captured", "hipEventQuery", "of an event recorded in the capture", hip="907", cuda="907",
        torch_callers=("torch.cuda.Event.query",), cause=_R.EVENT_QUERIED, fix=_EVENT_FIX,
    ),
    _rule(
        "event-synchronize-old", "hipEventSynchronize", "of an event recorded before the capture", hip="900 900 done", cuda="900 900 done",
        torch_callers=("torch.cuda.Event.synchronize",), cause=_R.EVENT_QUERIED, fix=_EVENT_FIX,
    ),
    _rule(
        "event-synchronize-captured", "hipEventSynchronize", "of an event recorded in the capture", hip="907", cuda="907",
        torch_callers=("torch.cuda.Event.synchronize",), cause=_R.EVENT_QUERIED, fix=_EVENT_FIX,
    ),
    _rule("event-elapsed-old", "hipEventElapsedTime", "of events recorded before the capture", hip="done", cuda="done"),
    _rule("event-record-other", "hipEventRecord", "on a stream outside the capture", hip="done", cuda="done", torch_callers=("torch.cuda.Event.record",)),
    # Work on other streams.
    _rule(
        "launch-default-stream", "hipModuleLaunchKernel", "on the default stream", hip="left", cuda="left",
        cuda_call="cudaLaunchKernel", cause=_R.DEFAULT_STREAM, fix=_CURRENT_STREAM,
    ),
    _rule(
        "launch-blocking-stream", "hipModuleLaunchKernel", "on a blocking stream outside the capture", hip="left",
        cuda="left", cuda_call="cudaLaunchKernel", fix=_CURRENT_STREAM,
    ),
    _rule(
        "launch-other-stream", "hipModuleLaunchKernel", "on another stream outside the capture", hip="left",
        cuda="left", cuda_call="cudaLaunchKernel", fix=_CURRENT_STREAM,
    ),
    _rule(
        "fork-unjoined", "hipStreamWaitEvent", "by a second stream that is not joined back", hip="end904",
        cuda="end904", torch_callers=("torch.cuda.Stream.wait_stream",), cause=_R.UNJOINED,
        fix="at the end of the function, on the main stream, call torch.cuda.current_stream().wait_stream(side)",
    ),
    _rule(
        "fork-joined", "hipStreamWaitEvent", "by a second stream that is joined back", hip="node", cuda="node",
        torch_callers=("torch.cuda.Stream.wait_stream",),
    ),
    _rule(
        "wait-uncaptured-event", "hipStreamWaitEvent", "for an event of a stream outside the capture", hip="left",
        cuda="905", torch_callers=("torch.cuda.Stream.wait_event",), cause=_R.UNCAPTURED_EVENT,
        fix="wait for the event before calling the captured function, so that every replay runs after it",
    ),
    _rule(
        "wait-other-capture", "hipStreamWaitEvent", "for an event of another capture", hip="left", cuda="902",
        torch_callers=("torch.cuda.Stream.wait_event",), cause=_R.UNCAPTURED_EVENT,
        fix="capture one function at a time, and do not let one wait for the other",
    ),
    # Captures and graphs.
    _rule(
        "begin-twice", "hipStreamBeginCapture", "on a stream that is already capturing", hip="kept401", cuda="kept401",
        torch_callers=("torch.cuda.graph",), fix="capture the inner function as part of the outer one",
    ),
    _rule(
        "end-other-stream", "hipStreamEndCapture", "on a different stream than it began on", hip="kept401", cuda="kept401",
        torch_callers=("torch.cuda.graph",), fix="restore the current stream before the capture ends",
    ),
    _rule("graph-instantiate", "hipGraphInstantiate", hip="done", cuda="900 900 done"),
    _rule(
        "graph-launch", "hipGraphLaunch", "on the capturing stream", hip="left", cuda="900", torch_callers=("torch.cuda.CUDAGraph.replay",),
        fix="replay graphs outside the captured function",
    ),
    # Create and load.
    _rule("module-load", "hipModuleLoadData", hip="done", cuda="done", cuda_call="cuModuleLoadData"),
    _rule("set-device", "hipSetDevice", "to the same device", hip="done", cuda="done", torch_callers=("torch.cuda.set_device",)),
    _rule("device-attribute", "hipDeviceGetAttribute", hip="done", cuda="done"),
    _rule("event-destroy", "hipEventDestroy", "of an event recorded before the capture", hip="done", cuda="done"),
    _rule("stream-destroy", "hipStreamDestroy", "of a stream that is not capturing", hip="done", cuda="done"),
    _rule("event-create", "hipEventCreateWithFlags", hip="done", cuda="done", torch_callers=("torch.cuda.Event",)),
    _rule("stream-create", "hipStreamCreateWithFlags", hip="done", cuda="done", torch_callers=("torch.cuda.Stream",)),
    # Host callbacks.
    _rule("launch-host-func", "hipLaunchHostFunc", hip="node", cuda="node"),
    _rule(
        "stream-add-callback", "hipStreamAddCallback", hip="left", hip72="900", cuda="900",
        fix="call it after the replay, outside the captured function; hipLaunchHostFunc can be captured",
    ),
    # The same calls from a thread that is not capturing.
    _rule("thread-malloc", "hipMalloc", hip="900 done done", cuda="900 done done"),
    _rule("thread-free", "hipFree", "of device memory", hip="900 done done", cuda="900 done done"),
    _rule("thread-host-malloc", "hipHostMalloc", hip="900 done done", cuda="900 done done", cuda_call="cudaHostAlloc", torch_callers=("torch.Tensor.pin_memory",)),
    _rule("thread-host-free", "hipHostFree", hip="900 done done", cuda="900 done done", cuda_call="cudaFreeHost"),
    _rule(
        "thread-event-query-captured", "hipEventQuery", "of an event recorded in the capture", hip="907", cuda="907",
        torch_callers=("torch.cuda.Event.query",),
    ),
    _rule(
        "thread-event-synchronize-captured", "hipEventSynchronize", "of an event recorded in the capture", hip="907",
        cuda="907", torch_callers=("torch.cuda.Event.synchronize",),
    ),
    _rule(
        "thread-event-synchronize-old", "hipEventSynchronize", "of an event recorded before the capture",
        hip="900 done done", cuda="900 done done", torch_callers=("torch.cuda.Event.synchronize",),
    ),
    _rule(
        "thread-stream-query", "hipStreamQuery", "of the capturing stream", hip="900", cuda="900",
        torch_callers=("torch.cuda.Stream.query",),
    ),
    _rule(
        "thread-stream-synchronize", "hipStreamSynchronize", "of the capturing stream", hip="900", cuda="900",
        torch_callers=("torch.cuda.Stream.synchronize",),
    ),
    _rule(
        "thread-event-query-old", "hipEventQuery", "of an event recorded before the capture", hip="done",
        hip72="900 done done", cuda="900 done done", torch_callers=("torch.cuda.Event.query",),
    ),
    _rule(
        "thread-stream-query-other", "hipStreamQuery", "of a stream that is not capturing", hip="900 done done", cuda="900 done done",
        torch_callers=("torch.cuda.Stream.query",),
    ),
    _rule("thread-device-synchronize", "hipDeviceSynchronize", hip="900", cuda="900", torch_callers=("torch.cuda.synchronize",)),
    _rule(
        "thread-stream-synchronize-other", "hipStreamSynchronize", "of a stream that is not capturing",
        hip="900 done done", cuda="900 done done", torch_callers=("torch.cuda.Stream.synchronize",),
    ),
    _rule("thread-memcpy", "hipMemcpy", "to the host, on the default stream", hip="906", cuda="left"),
    _rule("thread-memset", "hipMemset", "on the default stream", hip="906", cuda="left"),
    _rule("thread-memcpy-default-stream", "hipMemcpyAsync", "on the default stream", hip="left", cuda="left"),
    _rule("thread-end", "hipStreamEndCapture", hip="kept908 kept908 done", cuda="908 908 done", torch_callers=("torch.cuda.graph",)),
    _rule(
        "thread-launch-other-stream", "hipModuleLaunchKernel", "on another stream outside the capture", hip="left",
        cuda="left", cuda_call="cudaLaunchKernel",
    ),
    _rule("thread-module-load", "hipModuleLoadData", hip="done", cuda="done", cuda_call="cuModuleLoadData"),
)  # fmt: skip


@cache
def _by_id() -> dict[str, CaptureRule]:
    return {rule.id: rule for rule in CAPTURE_RULES}


def capture_rule(rule_id: str) -> CaptureRule:
    """Return the row with this id."""
    return _by_id()[rule_id]


def find_capture_rule(rule_id: str) -> CaptureRule | None:
    """Return the row with this id; None when there is none."""
    return _by_id().get(rule_id)


def rules_of(name: str) -> tuple[CaptureRule, ...]:
    """Return the rows of a call, given its HIP or CUDA name, a row's id, or the Python function that makes the call."""
    return tuple(rule for rule in CAPTURE_RULES if name in (rule.call, rule.cuda_call, rule.id, *rule.torch_callers))


def runtimes_on(platform: Platform, release: str) -> tuple[Runtime, ...]:
    """Return the runtimes whose columns apply to a machine.

    A HIP release that was not tested may behave like either tested release, so both are returned.
    """
    if platform is Platform.CUDA:
        return (Runtime.CUDA,)
    if platform is Platform.CPU:
        return ()
    hip_runtimes = tuple(runtime for runtime in Runtime if runtime.is_hip)
    same_release = (r for r in hip_runtimes if parts(r.value.removeprefix("hip-")) == parts(release)[:2])
    return tuple(same_release) or hip_runtimes


def nearest_runtime(platform: Platform, release: str) -> Runtime:
    """The runtime to simulate for a machine."""
    if platform is Platform.CUDA:
        return Runtime.CUDA
    return Runtime.HIP_6_4 if compare(release, "7") < 0 else Runtime.HIP_7_2


def describe_behavior(
    rule_id: str, runtimes: Iterable[Runtime] = tuple(Runtime), mode: CaptureMode = CaptureMode.GLOBAL
) -> str:
    """One sentence, without a full stop: what the runtimes do with a call during a capture in this mode."""
    rule = capture_rule(rule_id)
    by_behavior: dict[Behavior, list[Runtime]] = {}
    for runtime in runtimes:
        by_behavior.setdefault(rule.behavior(runtime, mode), []).append(runtime)
    text = "; ".join(_sentence(behavior, group) for behavior, group in by_behavior.items())
    return f"{rule.call} {rule.situation}".rstrip() + f": {text}"


def _sentence(behavior: Behavior, runtimes: Sequence[Runtime]) -> str:
    *most, last = [runtime.label for runtime in runtimes]
    verb = _VERBS[behavior.outcome].format(s="" if most else "s", was="were" if most else "was", error=behavior.error)
    return f"{', '.join(most)} and {last} {verb}" if most else f"{last} {verb}"
