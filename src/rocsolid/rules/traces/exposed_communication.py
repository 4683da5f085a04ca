"""Collectives run while the device runs no other kernels.

## What it does
Adds up the time in which only collectives run on a device.

## Why it matters
Communication that overlaps with computation costs no extra time. Communication without overlap makes every step longer.

## Example
    ncclDevKernel_Generic_1 runs for 71 ms; during 40 ms of these, no other kernel runs

## Use instead
Start communication earlier with smaller buckets, use a separate stream, or send fewer bytes (bf16 gradients).

## When to allow it
When the collective is the last operation of a step, or waits for a slower rank.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile
from rocsolid.rules.recoverable import recoverable

_MIN_EXPOSED_SHARE = 0.02  # of the traced time

RULE = Rule(
    code="TRC006",
    name="exposed-communication",
    severity=Severity.WARNING,
    message="{subject}: {exposed_ms:.2f} ms ({share:.0%}) in collectives that overlap with no other kernel",
    why="{overlapped:.0%} of {time_ms:.2f} ms of communication ({count} kernels) overlaps with other work.",
    fix="Start communication earlier and in smaller parts, and find the rank that the others wait for.{largest} {gain}",
    check="rocsolid trace DIR --ranks   (shows the straggler and the exposed time of each rank)",
    since="0.1",
)


def _largest(device: DeviceTrace) -> str:
    """Return the collective with the most exposed time, with its message size."""
    row = max(device.messages, key=lambda message: message.exposed_ns, default=None)
    if row is None:
        return ""
    return f" Most exposed: {row.count} {row.name} of {row.bytes / 1e6:.2f} MB over {row.ranks} ranks, {row.exposed_ns / 1e6:.2f} ms."


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report exposed communication from 2 % of the traced time on."""
    collectives = device.collectives
    if collectives.count and collectives.exposed_ns >= _MIN_EXPOSED_SHARE * device.span_ns:
        yield RULE.found(
            f"device {device.device}",
            location=file.file,
            exposed_ms=collectives.exposed_ns / 1e6,
            share=collectives.exposed_ns / max(device.span_ns, 1),
            time_ms=collectives.time_ns / 1e6,
            count=collectives.count,
            largest=_largest(device),
            **recoverable(0, collectives.exposed_ns, "other work is ready while the collectives run"),
            overlapped=1 - collectives.exposed_ns / max(collectives.time_ns, 1),
        )
