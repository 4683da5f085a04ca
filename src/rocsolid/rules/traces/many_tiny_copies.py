"""Data moves between CPU and GPU in many tiny copies.

## What it does
Looks for copies between CPU and GPU that are tiny on average, when they take at least 1 % of the traced time.

## Why it matters
Each copy needs a call on the CPU and a start on the GPU. Together they take a few microseconds, however small it is.

## Example
    for key, value in batch.items():
        batch[key] = value.to("cuda")     # forty copies of a kilobyte

## Use instead
    flat = torch.cat(parts).pin_memory()
    flat = flat.to("cuda", non_blocking=True)     # one copy, then views of it

## When to allow it
When the copies happen only once, at the start.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile
from rocsolid.rules.recoverable import recoverable

_MIN_COPIES = 32
_MAX_MEAN_BYTES = 64 * 1024
_MIN_SHARE = 0.01  # of the traced time

RULE = Rule(
    code="TRC003",
    name="many-tiny-copies",
    severity=Severity.WARNING,
    message="{count} {direction} copies on {subject} move only {mean_kb:.1f} kB each, at {gb_per_s:.2f} GB/s",
    why="Starting a copy costs more than moving its bytes: {time_ms:.2f} ms on the GPU, and one call on the CPU for each.",
    fix="Put the parts into one pinned buffer and copy it once with non_blocking=True. {gain}",
    check="rocsolid trace {file}   (lists copies by direction)",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report at least 32 copies from or to the host (H) of less than 64 kB on average, from 1 % of the traced time on."""
    for row in device.copies:
        sized_count = row.count - row.unknown_size_count
        if "H" not in row.direction or sized_count < _MIN_COPIES or row.bytes >= _MAX_MEAN_BYTES * sized_count:
            continue
        if row.time_ns < _MIN_SHARE * device.span_ns:
            continue
        yield RULE.found(
            f"device {device.device}",
            location=file.file,
            count=row.count,
            direction=row.direction,
            mean_kb=row.bytes / sized_count / 1e3,
            gb_per_s=row.gb_per_s,
            time_ms=row.time_ns / 1e6,
            **recoverable(0, row.time_ns * (1 - 1 / row.count), "one copy can replace them all"),
        )
