"""The device waits for the host to launch its next kernel.

## What it does
Adds up the gaps on a device whose next work was launched only after the device had run dry, or was being launched when it did.
Gaps whose host stood in a wait, a blocking copy or a data loader are counted elsewhere.

## Why it matters
A launch costs the host several microseconds; a small kernel is done before the next one is launched.
A device graph replays all of them with one launch.

## Example
    device 2: 3.1 of 3.5 ms idle, 60 kernels, 60 launches

## Use instead
    fast = rs.capture(model)              # one launch for the whole call
    model = torch.compile(model)          # fewer, larger kernels

## When to allow it
When the host has real work to do between launches, or shapes change with every call.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Cause, DeviceTrace, TraceFile

_SHARE = 0.1
_CAPTURED = 0.5
_CAPTURE = "Capture the call in a device graph."
_AGAIN = "The kernels are replayed already: shorten what the host does between replays, or capture that too."

RULE = Rule(
    code="TRC001",
    name="launch-bound",
    severity=Severity.WARNING,
    seen="{subject} waits {waited_ms:.2f} ms of {span_ms:.2f} ms ({share:.0%}) for {gaps} late launches",
    why="The host launches {launches} times for {kernels} kernels; {replayed:.0%} of the kernel time runs under graphs.",
    cure="{advice} Expected gain: up to {waited_ms:.2f} ms, {share:.0%} of the time traced.",
    check="Profile again and compare: rocsolid compare before.json.gz after.json.gz",
    since="0.2",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """A tenth of the span or more in gaps that a late launch ended."""
    late = [idle for idle in device.idle if idle.cause in (Cause.HOST_LATE, Cause.LAUNCHING)]
    waited = sum(idle.time_ns for idle in late)
    replayed = device.graph_kernel_time_ns / max(device.kernel_time_ns, 1)
    if device.span_ns and waited >= _SHARE * device.span_ns:
        yield RULE.found(
            f"device {device.device}",
            place=file.file,
            waited_ms=waited / 1e6,
            span_ms=device.span_ns / 1e6,
            share=waited / device.span_ns,
            gaps=sum(idle.gap_count for idle in late),
            launches=device.launches.launch_count,
            kernels=device.kernel_count,
            replayed=replayed,
            advice=_AGAIN if replayed >= _CAPTURED else _CAPTURE,
        )
