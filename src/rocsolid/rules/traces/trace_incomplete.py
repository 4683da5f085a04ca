"""Part of the trace could not be read, or lies outside it.

## What it does
Tells how many events were broken, whether the file was cut off, and how much work on the device has no launch in the trace.

## Why it matters
Figures hold for what could be read. A gap next to lost events may be no gap at all.

## Example
    the gzip data end early, after 41,943,040 bytes of text

## Use instead
    profile again and let the program end by itself; profile fewer steps when the disk was full

## When to allow it
When you know why: a few launches before the window are normal.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile

_UNLINKED = 0.25

RULE = Rule(
    code="TRC008",
    name="trace-incomplete",
    severity=Severity.WARNING,
    message="{subject} is incomplete: {what}",
    why="Figures hold for what could be read; idle time beside lost events is not to be trusted.",
    fix="Profile again, and let the profiler finish writing.",
    check="rocsolid trace FILE shows no skipped events",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace | None) -> Iterator[Finding]:
    """Once for the file, and once for a device most of whose launches are missing."""
    if device is None:
        said = [*file.damage, *([f"{file.skipped_events:,} events are broken"] if file.skipped_events else [])]
        if said:
            yield RULE.found(file.file, location=file.file, what="; ".join(said), skipped=file.skipped_events)
        return
    events = device.kernel_count + device.copy_count + device.set_count
    unlinked = device.launches.unlinked_count
    if file.producer == "kineto" and unlinked >= _UNLINKED * events:
        what = f"{unlinked:,} of {events:,} kernels and copies of device {device.device} have no launch in the trace"
        yield RULE.found(file.file, severity=Severity.INFO, location=file.file, what=what, skipped=0)
