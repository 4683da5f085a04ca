"""Part of the trace is missing or cannot be read.

## What it does
Reports how many events are broken, whether the file is truncated, and how much GPU work has no launch in the trace.

## Why it matters
All numbers cover only the readable part. A gap next to lost events may not be a gap at all.

## Example
    the gzip data ends early, after 41,943,040 decompressed bytes

## Use instead
Profile again and let the program finish. Profile fewer steps if the disk was full.

## When to allow it
When you know the reason. It is normal that some work at the start of the trace was launched before it.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile

_MIN_UNLINKED_SHARE = 0.25  # of kernels and copies

RULE = Rule(
    code="TRC008",
    name="trace-incomplete",
    severity=Severity.WARNING,
    message="{subject} is incomplete: {problem}",
    why="All numbers cover only the readable part. Idle time next to lost events may not be real.",
    fix="Profile again, and let the profiler finish writing.",
    check="rocsolid trace {file}   (after the fix, it shows no skipped events)",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace | None) -> Iterator[Finding]:
    """Report a damaged file once, and each device on which at least 25 % of the work has no launch in the trace."""
    if device is None:
        problems = [*file.damage, *([f"{file.skipped_events:,} events are broken"] if file.skipped_events else [])]
        if problems:
            yield RULE.found(file.file, location=file.file, problem="; ".join(problems), skipped=file.skipped_events)
        return
    events = device.kernel_count + device.copy_count + device.memset_count
    unlinked = device.launches.unlinked_count
    if file.producer == "kineto" and unlinked >= _MIN_UNLINKED_SHARE * events:
        problem = f"{unlinked:,} of {events:,} kernels and copies of device {device.device} have no launch in the trace"
        yield RULE.found(file.file, severity=Severity.INFO, location=file.file, problem=problem, skipped=0)
