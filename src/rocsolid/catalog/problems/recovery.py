"""Known problems: state that stays behind after a failed capture."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="capture-stream-not-restored",
        title="After a failed graph capture, torch keeps using the capture stream",
        when=on(Platform.ROCM, Platform.CUDA, torch="..2.14"),
        severity=Severity.WARNING,
        symptom=(
            "A capture raises and the exception is handled, but later work runs on the graph's private "
            "stream. The rest of the program is not synchronised with that stream. The result is data "
            "races and unexplained errors in the next capture."
        ),
        fix=(
            "Wrap the capture yourself: save torch.cuda.current_stream() and restore it with "
            "torch.cuda.set_stream() in a finally block. torch 2.15 does this."
        ),
        verify=("Make a capture fail on purpose: torch.cuda.current_stream() must be the same before and after."),
        status="fixed in torch 2.15.0",
        evidence=(
            source(
                "torch 2.8.0 to 2.15.0 torch/cuda/graphs.py graph.__exit__",
                (
                    "Up to 2.14.1 the previous stream is restored only if capture_end does not raise; "
                    "2.15.0 restores it in a finally block, and a comment gives the reason."
                ),
            ),
            measured(
                "capture-facts-on-h200",
                ("On an H200 with torch 2.11 the current stream was still the capture stream after a failed capture."),
            ),
        ),
    ),
    KnownProblem(
        id="failed-capture-leaks-pool",
        title="A failed graph capture leaks its memory pool until the process ends",
        when=on(Platform.ROCM, Platform.CUDA, torch="..2.13"),
        severity=Severity.INFO,
        symptom=(
            "Memory reserved by a capture that raised is never freed. torch.cuda.empty_cache() does not help, "
            "and repeated attempts run out of memory."
        ),
        fix=(
            "After a failed capture, fix its cause and restart the process. Or try captures in a child "
            "process first. AMD's own builds of 2.11, 2.12 and 2.13 contain the fix from July 2026."
        ),
        verify=(
            "Let a capture fail, delete the graph and call empty_cache(): torch.cuda.memory_reserved() "
            "must return to its value before the capture."
        ),
        status=(
            "fixed in July 2026 for torch 2.14 (#190348); a fix for captures that fail before their "
            "end was still open (#190308)"
        ),
        evidence=(
            issue(
                "pytorch/pytorch#190348",
                "reset() released the pool only after a successful capture; now also after a failed one.",
            ),
            issue(
                "pytorch/pytorch#190308",
                ("A fix for captures that fail before capture_end; it was open when we read it."),
            ),
            issue(
                "pytorch/pytorch#180395",
                (
                    "An earlier part of the fix: after an error at the end of a capture, the allocator "
                    "still assumed that a capture was active."
                ),
            ),
            issue("ROCm/pytorch#3486", "The same change in AMD's 2.13 branch."),
        ),
    ),
    KnownProblem(
        id="stale-capture-state",
        title="After a failed HIP graph capture, its stream stays in the invalidated state",
        when=on(Platform.ROCM, rocm="6.4..7.13"),
        severity=Severity.INFO,
        symptom=(
            "After a failed capture, synchronising that stream or capturing on it again raises capture "
            "errors, although no capture is active."
        ),
        fix=(
            "Discard the stream after a failed capture and use a new one, or restart the process. If "
            "other streams were not joined back, do not end the capture a second time: this crashes."
        ),
        verify=(
            "After a deliberate failure, `torch.cuda.Stream().synchronize()` and a valid capture on a new "
            "stream must work."
        ),
        calls=("fork-unjoined",),
        status=(
            "fixed upstream in May 2026 (rocm-systems#6509); we do not know which release is the first with the fix"
        ),
        evidence=(
            issue(
                "ROCm/rocm-systems#6509",
                "hipStreamEndCapture left the status at invalidated; the change resets it as CUDA does.",
            ),
            issue(
                "ROCm/legacy-rocm-build#4614",
                (
                    "AMD's known-issue note for ROCm 6.4.0: leftover state of an earlier capture makes the next one "
                    "fail."
                ),
            ),
            issue(
                "ROCm/rocm-systems#6097",
                (
                    "Describes how leftover entries of an earlier capture made every later HIP call fail "
                    "with a capture error."
                ),
            ),
            source(
                "HIP runtime 6.4.3 and 7.2.4, run against a simulated GPU",
                (
                    "On 6.4.3 and 7.2.4, a stream whose capture failed at its end stays invalidated "
                    "until the next valid capture on it. If the reason was a stream that was not "
                    "joined back, the capture stays active, and ending it a second time segfaults in "
                    "relaxed mode."
                ),
            ),
        ),
    ),
)
