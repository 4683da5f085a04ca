"""The trace contradicts itself, so some of its numbers cannot be true.

## What it does
Checks the trace before anything is concluded from it: work that was launched or waited for but is not in the file,
events of one stream that overlap, durations longer than the trace, clocks of host and device that differ, and
durations that contain the gap to the next kernel. Findings about the same file become INFO and name this one.

## Why it matters
A device that looks 100 % busy may be a device whose other kernels were lost. Advice that is built on such numbers is
wrong.

## Example
    hipStreamSynchronize waits 9.30 ms longer than any recorded work runs

## Use instead
Profile again. For HIP graphs, use ROCm 7.2.2 or later, and check that torch/lib does not bring an older ROCTracer.

## When to allow it
When you know the reason and only need the numbers that it does not affect.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, DoubtKind, TraceFile

_NOTES = (DoubtKind.NO_HOST_EVENTS, DoubtKind.GAPS_IN_DURATIONS)
_WHY = {
    DoubtKind.LOST_KERNELS: "Busy time, kernel counts and idle time are too low or too high by the lost work.",
    DoubtKind.LOST_CALLS: "The cause of the idle time before these kernels is unknown, and so is their operator.",
    DoubtKind.OVERLAP: "Kernel time, busy time and every share of them are wrong.",
    DoubtKind.DURATIONS: "Kernel time, busy time and every share of them are wrong.",
    DoubtKind.CLOCK_SHIFT: "Launch latency and the cause of each gap compare two clocks that differ.",
    DoubtKind.GAPS_IN_DURATIONS: "Short kernels look several times as long as they are, and idle time between them is hidden.",
    DoubtKind.NO_HOST_EVENTS: "Only totals and kernel times can be computed.",
}
_FIX = {
    DoubtKind.LOST_KERNELS: "Profile again with a larger profiler buffer or fewer steps; for HIP graphs, with ROCm 7.2.2 or later.",
    DoubtKind.CLOCK_SHIFT: "Profile again; do not merge host and device events of different tools.",
    DoubtKind.GAPS_IN_DURATIONS: "Measure single kernels with rocprofv3, or time the whole call without the profiler.",
    DoubtKind.NO_HOST_EVENTS: "Profile with ProfilerActivity.CPU too, and give the whole file.",
}

RULE = Rule(
    code="TRC013",
    name="implausible-trace",
    severity=Severity.WARNING,
    message="{subject}: {problem}",
    why="{effect}",
    fix="{remedy}",
    check="rocsolid trace {file}   (after the fix, this finding is gone)",
    since="0.1",
)
_LOST_IN_GRAPHS = (
    issue(
        "sgl-project/sglang#35390", "Profiles of HIP graphs on ROCm 7.2 images lacked up to 87 % of the decode kernels."
    ),
)


def check_trace(file: TraceFile, device: DeviceTrace | None) -> Iterator[Finding]:
    """Report each doubt about the file once; two of them are only notes."""
    if device is not None:
        return
    for doubt in file.doubts:
        yield RULE.found(
            f"device {doubt.device}" if doubt.device else "the trace",
            severity=Severity.INFO if doubt.kind in _NOTES else None,
            location=file.file,
            evidence=_LOST_IN_GRAPHS if doubt.kind is DoubtKind.LOST_KERNELS else (),
            kind=doubt.kind.value,
            problem=doubt.text,
            effect=_WHY[doubt.kind],
            remedy=_FIX.get(doubt.kind, "Profile again."),
        )
