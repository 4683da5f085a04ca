"""Devices talk to each other while they do nothing else.

## What it does
Adds up the time in which collectives run on a device and no other kernel does.

## Why it matters
Communication that runs beside computation costs nothing; what stands alone is added to every step.

## Example
    ncclDevKernel_Generic_1: 71 ms, 40 ms of it alone

## Use instead
    smaller buckets that start earlier, a stream of their own, fewer bytes (bf16 gradients)

## When to allow it
When the collective is the last thing of a step, or waits for a slower rank.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile

_SHARE = 0.1

RULE = Rule(
    code="TRC006",
    name="exposed-communication",
    severity=Severity.WARNING,
    message="{subject} spends {exposed_ms:.2f} ms ({share:.0%}) in collectives with nothing beside them",
    why="Of {time_ms:.2f} ms of communication in {count} kernels, {hidden:.0%} is hidden behind other work.",
    fix="Start communication earlier and in smaller parts; look for the rank that the others wait for.",
    check="rocsolid trace DIR --ranks names the straggler and the exposed time of each rank",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """A tenth of the span or more."""
    talk = device.collectives
    if talk.count and talk.exposed_ns >= _SHARE * device.span_ns:
        yield RULE.found(
            f"device {device.device}",
            location=file.file,
            exposed_ms=talk.exposed_ns / 1e6,
            share=talk.exposed_ns / max(device.span_ns, 1),
            time_ms=talk.time_ns / 1e6,
            count=talk.count,
            hidden=1 - talk.exposed_ns / max(talk.time_ns, 1),
        )
