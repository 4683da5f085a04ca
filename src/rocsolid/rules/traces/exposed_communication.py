"""Collectives run while the device does nothing else.

## What it does
Adds up the time in which only collectives run on a device.

## Why it matters
Communication that overlaps with computation costs no time. Communication without overlap adds to every step.

## Example
    ncclDevKernel_Generic_1: 71 ms, 40 ms of it alone

## Use instead
Start communication earlier with smaller buckets, use a separate stream, or send fewer bytes (bf16 gradients).

## When to allow it
When the collective is the last operation of a step, or waits for a slower rank.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile

_SHARE = 0.1

RULE = Rule(
    code="TRC006",
    name="exposed-communication",
    severity=Severity.WARNING,
    message="{subject}: {exposed_ms:.2f} ms ({share:.0%}) in collectives that overlap with no other kernel",
    why="{hidden:.0%} of {time_ms:.2f} ms of communication ({count} kernels) overlaps with other work.",
    fix="Start communication earlier and in smaller parts, and find the rank that the others wait for.",
    check="rocsolid trace DIR --ranks   (shows the straggler and the exposed time of each rank)",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Exposed communication for at least 10 % of the traced time."""
    collectives = device.collectives
    if collectives.count and collectives.exposed_ns >= _SHARE * device.span_ns:
        yield RULE.found(
            f"device {device.device}",
            location=file.file,
            exposed_ms=collectives.exposed_ns / 1e6,
            share=collectives.exposed_ns / max(device.span_ns, 1),
            time_ms=collectives.time_ns / 1e6,
            count=collectives.count,
            hidden=1 - collectives.exposed_ns / max(collectives.time_ns, 1),
        )
