"""The device waits for the host to launch its next kernel.

## What it does
Adds up the gaps on a device whose next work was launched only after the device had run dry, or was being launched when it did.
Gaps whose host stood in a wait, a blocking copy or a data loader are counted elsewhere.
Time in which the host captured a graph is no lateness: launches are recorded then, and the device rests.
A trace of which that is the larger part gets a note that says so, in place of the advice to capture.

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
_GAIN = " Expected gain: up to {waited_ms:.2f} ms, {share:.0%} of the time traced."
_CAPTURE = "Capture the call in a device graph."
_AGAIN = "The kernels are replayed already: shorten what the host does between replays, or capture that too."
_REPLAY = "Profile calls that replay the graph: these say what is left to win."
_GOING_ON = (
    " A capture is going on: {recorded:,} launches were recorded instead of run, and the device rests meanwhile."
)
_SEEMS = (
    " It seems that a capture is going on, whose beginning and end the trace does not show: {silent:,} of {launches:,} "
    "launches brought no work to any device."
)
_BESIDE = " Another {captured_ms:.2f} ms passed while a graph was captured."
# Launches without work at the edge of a trace are nothing to wonder at.
_SILENT, _FEW = 0.5, 20

RULE = Rule(
    code="TRC001",
    name="launch-bound",
    severity=Severity.WARNING,
    message="{subject} waits {waited_ms:.2f} ms of {span_ms:.2f} ms ({share:.0%}) for {gaps} late launches",
    why="The host launches {launches} times for {kernels} kernels; {replayed:.0%} of the kernel time runs under graphs.{capture}",
    fix="{advice}",
    check="Profile again and compare: rocsolid compare before.json.gz after.json.gz",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """A tenth of the span or more in gaps that a late launch ended, while no graph was captured; otherwise a note."""
    late = [idle for idle in device.idle if idle.cause in (Cause.HOST_LATE, Cause.LAUNCHING)]
    whole = sum(idle.time_ns for idle in late)
    captured = sum(idle.capture_ns for idle in late)
    least = _SHARE * device.span_ns
    if not device.span_ns or whole < least:
        return
    seen = file.captures
    seems = not seen.count and seen.silent_launches >= max(_FEW, _SILENT * seen.launches)
    capturing = whole - captured < least or seems
    waited = whole if capturing else whole - captured
    share = waited / device.span_ns
    replayed = device.graph_kernel_time_ns / max(device.kernel_time_ns, 1)
    if capturing:
        text, advice = _SEEMS if seems else _GOING_ON, _REPLAY
    else:
        text = _BESIDE if captured else ""
        advice = _AGAIN if replayed >= _CAPTURED else _CAPTURE
        advice += _GAIN.format(waited_ms=waited / 1e6, share=share)
    yield RULE.found(
        f"device {device.device}",
        severity=Severity.INFO if capturing else None,
        location=file.file,
        waited_ms=waited / 1e6,
        span_ms=device.span_ns / 1e6,
        share=share,
        gaps=sum(idle.gap_count for idle in late),
        launches=device.launches.launch_count,
        kernels=device.kernel_count,
        replayed=replayed,
        capture=text.format(
            recorded=seen.recorded_launches,
            silent=seen.silent_launches,
            launches=seen.launches,
            captured_ms=captured / 1e6,
        ),
        advice=advice,
    )
