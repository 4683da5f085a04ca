"""The host waits for the device, and the device then waits for the host.

## What it does
Adds up the gaps during which the launching thread came out of a synchronisation or a blocking copy.

## Why it matters
The queue runs empty at every such place, so nothing hides the cost of the launches that follow.
It also makes the call impossible to capture in a device graph.

## Example
    if loss.item() > best: ...            # waits for the loss of this very step

## Use instead
    losses.append(loss.detach())          # look at them every hundredth step
    x = x.to(device, non_blocking=True)   # from pinned memory

## When to allow it
At the end of a step that is measured, and where a value decides what runs next.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Cause, DeviceTrace, TraceFile

_SHARE = 0.02

RULE = Rule(
    code="TRC002",
    name="sync-inside-step",
    severity=Severity.WARNING,
    message="{subject} stands idle for {waited_ms:.2f} ms ({share:.1%}) behind {gaps} waits of the host, the longest before {after}",
    why="While the host waits, it launches nothing; a device graph cannot be captured across such a wait.",
    fix="Take {call} out of the step: keep values on the device, read them later, copy from pinned memory without blocking.",
    check="Profile again; `rocsolid trace` shows idle time by cause",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """A fiftieth of the span or more."""
    waits = [idle for idle in device.idle if idle.cause in (Cause.SYNC, Cause.COPY)]
    waited = sum(idle.time_ns for idle in waits)
    if not device.span_ns or waited < _SHARE * device.span_ns:
        return
    longest = next((gap for gap in device.gaps if gap.cause in (Cause.SYNC, Cause.COPY)), None)
    yield RULE.found(
        f"device {device.device}",
        location=file.file,
        waited_ms=waited / 1e6,
        share=waited / device.span_ns,
        gaps=sum(idle.gap_count for idle in waits),
        after=(longest.after[:60] if longest else "") or "unknown work",
        call=(longest.host if longest else "") or "the wait",
    )
