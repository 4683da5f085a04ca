"""What a failed capture leaves behind."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="capture-stream-not-restored",
        title="After a failed capture torch keeps working on the capture stream",
        when=on(Platform.ROCM, Platform.CUDA, torch="..2.14"),
        severity=Severity.WARNING,
        symptom=(
            "A capture raises and is handled, yet later work runs on the graph's private stream: missing "
            "synchronisation with the rest of the program, races, odd errors in the next capture."
        ),
        fix=(
            "Wrap the capture yourself: remember torch.cuda.current_stream() and call torch.cuda.set_stream() "
            "with it in a finally block. torch 2.15 does it."
        ),
        verify=("Make a capture fail on purpose; torch.cuda.current_stream() afterwards must equal the one before."),
        status="fixed in torch 2.15.0",
        evidence=(
            source(
                "torch 2.8.0 to 2.15.0 torch/cuda/graphs.py graph.__exit__",
                "Through 2.14.1 the stream context is left only when capture_end did not raise; 2.15.0 leaves it in a finally block and says why.",
            ),
            measured(
                "capture-facts-on-h200",
                "On an H200 with torch 2.11 the current stream stayed the capture stream after a failed capture.",
            ),
        ),
    ),
    KnownProblem(
        id="failed-capture-leaks-pool",
        title="A failed capture keeps its memory pool for the life of the process",
        when=on(Platform.ROCM, Platform.CUDA, torch="..2.13"),
        severity=Severity.INFO,
        symptom=(
            "Memory reserved by a capture that raised never comes back; torch.cuda.empty_cache() does not help,"
            " and retries add up to out of memory."
        ),
        fix=(
            "Fix the cause and restart the process after a failed capture, or try captures in a child process "
            "first. AMD's own builds of 2.11, 2.12 and 2.13 carry the fix from July 2026."
        ),
        verify=(
            "Let a capture fail, drop the graph, call empty_cache(): torch.cuda.memory_reserved() must fall to "
            "the value before."
        ),
        status="merged July 2026 for torch 2.14 (#190348); errors before the end step were still open (#190308)",
        evidence=(
            issue(
                "pytorch/pytorch#190348",
                "reset() released the pool only after a successful capture; now also after a failed one.",
            ),
            issue("pytorch/pytorch#190308", "Covers captures that break off before their end step; open as read."),
            issue(
                "pytorch/pytorch#180395",
                "An earlier part: an error at the end of capture left the allocator believing a capture was under way.",
            ),
            issue("ROCm/pytorch#3486", "The same change taken into AMD's 2.13 branch."),
        ),
    ),
    KnownProblem(
        id="stale-capture-state",
        title="A failed capture leaves its stream marked invalidated on HIP",
        when=on(Platform.ROCM, rocm="6.4..7.13"),
        severity=Severity.INFO,
        symptom=(
            "After a capture failed, synchronising that stream, or the next capture on it, fails again with "
            "capture errors although nothing is being captured."
        ),
        fix=(
            "Drop the stream after a failed capture and use a new one, or restart the process; never end an "
            "unjoined capture twice, it crashes."
        ),
        verify=(
            "After a deliberate failure, `torch.cuda.Stream().synchronize()` and a good capture on a new stream"
            " must work."
        ),
        calls=("fork-unjoined",),
        status="merged upstream May 2026 (rocm-systems#6509); first release with it not known",
        evidence=(
            issue(
                "ROCm/rocm-systems#6509",
                "hipStreamEndCapture left the status at invalidated; the change resets it as CUDA does.",
            ),
            issue(
                "ROCm/legacy-rocm-build#4614",
                "AMD's known-issue note for ROCm 6.4.0: stale state of an earlier capture stops the next one.",
            ),
            issue(
                "ROCm/rocm-systems#6097",
                "Describes how stale entries made every later HIP call fail with a capture error.",
            ),
            source(
                "HIP runtime 6.4.3 and 7.2.4, run against a pretend device",
                "On 6.4.3 and 7.2.4 the state stays invalidated after a failed end until the next good capture on the stream; after unjoined work the stream goes on capturing, and a second end segfaults in relaxed mode.",
            ),
        ),
    ),
)
