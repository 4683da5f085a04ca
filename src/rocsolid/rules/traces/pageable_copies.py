"""Large copies go through memory that is not pinned.

## What it does
Looks for copies between host and device whose host memory the trace calls pageable, of a megabyte or more in all.

## Why it matters
The driver copies them twice, through a buffer of its own, and the host waits meanwhile.

## Example
    Memcpy HtoD (Pageable -> Device): 120 copies, 2.1 GB, 6 GB/s

## Use instead
    DataLoader(..., pin_memory=True), then x.to(device, non_blocking=True)

## When to allow it
For data that are copied once.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile

_LEAST = 1_000_000

RULE = Rule(
    code="TRC007",
    name="pageable-copies",
    severity=Severity.WARNING,
    message="{count} copies {direction} on {subject} use pageable memory: {megabytes:.1f} MB at {gb_per_s:.1f} GB/s",
    why="Pageable memory is copied twice, and the call blocks the host until that is done.",
    fix="Pin the host memory (pin_memory=True) and copy with non_blocking=True.",
    check="Profile again: the copies are then called Pinned",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """A megabyte or more."""
    for row in device.copies:
        if row.memory == "pageable" and row.bytes >= _LEAST:
            yield RULE.found(
                f"device {device.device}",
                location=file.file,
                count=row.count,
                direction=row.direction,
                megabytes=row.bytes / 1e6,
                gb_per_s=row.gb_per_s,
            )
