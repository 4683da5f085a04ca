"""Large copies between CPU and GPU use memory that is not pinned.

## What it does
Looks for copies between CPU and GPU whose host memory is pageable according to the trace, with at least 1 MB in total.

## Why it matters
The driver copies the data twice, through its own buffer, and the CPU waits for it.

## Example
    Memcpy HtoD (Pageable -> Device): 120 copies, 2.1 GB, 6 GB/s

## Use instead
    DataLoader(..., pin_memory=True), then x.to(device, non_blocking=True)

## When to allow it
For data that is copied only once.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile
from rocsolid.rules.recoverable import recoverable

_MIN_BYTES = 1_000_000
_MIN_SHARE = 0.005  # of the traced time
_PINNED_GB_PER_S = 25.0

RULE = Rule(
    code="TRC007",
    name="pageable-copies",
    severity=Severity.WARNING,
    message="{count} {direction} copies on {subject} use pageable memory: {megabytes:.1f} MB at {gb_per_s:.1f} GB/s",
    why="Pageable memory is copied twice, and the call blocks the CPU until the copy is done.",
    fix="Pin the host memory (pin_memory=True) and copy with x.to(device, non_blocking=True). {gain}",
    check="Profile again: the trace then shows these copies as Pinned",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report pageable copies of at least 1 MB and 0.5 % of the traced time in total."""
    for row in device.copies:
        if row.memory == "pageable" and row.bytes >= _MIN_BYTES and row.time_ns >= _MIN_SHARE * device.span_ns:
            yield RULE.found(
                f"device {device.device}",
                location=file.file,
                count=row.count,
                direction=row.direction,
                megabytes=row.bytes / 1e6,
                gb_per_s=row.gb_per_s,
                **recoverable(
                    0, row.time_ns - row.bytes / _PINNED_GB_PER_S, f"pinned copies run at {_PINNED_GB_PER_S:.0f} GB/s"
                ),
            )
