"""Part of the trace is missing or cannot be read.

## What it does
Reports how many events are broken, whether the file is truncated, and how much GPU work has no launch in the trace.

## Why it matters
All numbers cover only the readable part. A gap next to lost events may not be a gap at all.

## Example
    the gzip data ends early, after 41,943,040 bytes of text

## Use instead
Profile again and let the program finish. Profile fewer steps if the disk was full.

## When to allow it
When you know the reason. A few launches before the start of the trace are normal.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile

_UNLINKED_SHARE = 0.25

RULE = Rule(
    code="TRC008",
    name="trace-incomplete",
    severity=Severity.WARNING,
    message="{subject} is incomplete: {what}",
    why="All numbers cover only the readable part. Do not trust idle time next to lost events.",
    fix="Profile again, and let the profiler finish writing.",
    check="rocsolid trace {file}   (shows no skipped events)",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace | None) -> Iterator[Finding]:
    """Once for the file, and once for each device whose launches are mostly missing."""
    if device is None:
        problems = [*file.damage, *([f"{file.skipped_events:,} events are broken"] if file.skipped_events else [])]
        if problems:
            yield RULE.found(file.file, location=file.file, what="; ".join(problems), skipped=file.skipped_events)
        return
    events = device.kernel_count + device.copy_count + device.memset_count
    unlinked = device.launches.unlinked_count
    if file.producer == "kineto" and unlinked >= _UNLINKED_SHARE * events:
        what = f"{unlinked:,} of {events:,} kernels and copies of device {device.device} have no launch in the trace"
        yield RULE.found(file.file, severity=Severity.INFO, location=file.file, what=what, skipped=0)
