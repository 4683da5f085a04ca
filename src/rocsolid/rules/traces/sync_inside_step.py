"""The CPU waits for the device in the middle of a step, and then the device waits for the CPU.

## What it does
Adds up the gaps in which the launching thread was in a synchronization or a blocking copy.

## Why it matters
No more work is queued on the GPU, so the launches that follow cannot overlap with GPU work. A call with a host sync
also cannot be captured in a CUDA graph.

## Example
    if loss.item() > best: ...            # waits for the loss of this step

## Use instead
    losses.append(loss.detach())          # read them every hundredth step
    x = x.to(device, non_blocking=True)   # from pinned memory

## When to allow it
At the end of a measured step, and where Python needs the value to decide what runs next.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, Gap, IdleCause, TraceFile
from rocsolid.rules.recoverable import recoverable

_MIN_IDLE_SHARE = 0.02  # of the traced time

RULE = Rule(
    code="TRC002",
    name="sync-inside-step",
    severity=Severity.WARNING,
    message="{subject} is idle for {waited_ms:.2f} ms ({share:.1%}) because of {gaps} host syncs",
    why="While the CPU waits, it launches nothing. The longest gap ends when {next_kernel} starts. A CUDA graph cannot be captured across a host sync.",
    fix="Move {call} out of the step: keep values on the GPU, read them later, copy from pinned memory with non_blocking=True. {gain}",
    check="rocsolid trace {file}   (shows idle time by cause)",
    since="0.1",
)


def _culprit(gap: Gap | None) -> str:
    """Return the operator that waits, with the runtime call it waits in."""
    call = (gap.host_activity if gap else "") or "the synchronization"
    return f"{gap.host_operator} ({call})" if gap and gap.host_operator else call


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report gaps after host syncs from 2 % of the traced time on."""
    waits = [idle for idle in device.idle if idle.cause in (IdleCause.SYNC, IdleCause.BLOCKING_COPY)]
    waited_ns = sum(idle.time_ns for idle in waits)
    if not device.span_ns or waited_ns < _MIN_IDLE_SHARE * device.span_ns:
        return
    longest = next((gap for gap in device.gaps if gap.cause in (IdleCause.SYNC, IdleCause.BLOCKING_COPY)), None)
    yield RULE.found(
        f"device {device.device}",
        location=file.file,
        waited_ms=waited_ns / 1e6,
        share=waited_ns / device.span_ns,
        gaps=sum(idle.gap_count for idle in waits),
        next_kernel=(longest.next_work[:60] if longest else "") or "unknown work",
        call=_culprit(longest),
        **recoverable(0, waited_ns, "the value is not needed on the CPU before the next launch"),
    )
