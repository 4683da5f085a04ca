"""The device waits for the data loader.

## What it does
Adds up the gaps on a device during which the CPU was in a data loader for at least half of the gap.

## Why it matters
The device cannot work faster than its data arrives.

## Example
    enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ takes 31 ms in a step of 80 ms

## Use instead
    DataLoader(..., num_workers=8, pin_memory=True, persistent_workers=True, prefetch_factor=4)

## When to allow it
In the first step, in which the worker processes start.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, IdleCause, TraceFile
from rocsolid.rules.recoverable import recoverable

_MIN_IDLE_SHARE = 0.05  # of the traced time

RULE = Rule(
    code="TRC005",
    name="data-loader-wait",
    severity=Severity.WARNING,
    message="{subject} waits {waited_ms:.2f} ms ({share:.0%}) for the data loader, in {gaps} gaps",
    why="The CPU is in the data loader while the device has nothing to do.",
    fix="Give the DataLoader more workers, pinned memory and a larger prefetch_factor, or do less work per sample. {gain}",
    check="rocsolid trace {file}   (shows idle time by cause)",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report waiting for the data loader from 5 % of the traced time on."""
    for idle in device.idle:
        if idle.cause is IdleCause.DATA_LOADER and idle.time_ns >= _MIN_IDLE_SHARE * device.span_ns:
            yield RULE.found(
                f"device {device.device}",
                location=file.file,
                waited_ms=idle.time_ns / 1e6,
                share=idle.time_ns / device.span_ns,
                gaps=idle.gap_count,
                **recoverable(0, idle.time_ns, "the data loader can keep up with the device"),
            )
