"""The device waits for the CPU to launch the next kernel.

## What it does
Adds up the gaps on a device that a late launch caused: when the device became idle, the CPU had not begun to launch the
next work, or the launch call was still running.
Gaps in which the CPU was in a synchronization, a blocking copy or a data loader are reported by other rules.
Time in which a graph was captured does not count: launches are then recorded and not run, so the device is idle. If
a capture explains most of the gaps, the finding says so and does not advise to capture.

## Why it matters
A launch costs several microseconds on the CPU. A small kernel finishes before the next one is launched. A CUDA graph
replays all kernels with one launch.

## Example
    device 2 is idle for 3.1 of 3.5 ms: 60 kernels, each with its own launch call

## Use instead
    fast = rs.capture(model)              # one launch for the whole call
    model = torch.compile(model)          # fewer, larger kernels

## When to allow it
When the CPU has real work to do between launches, or shapes change with every call.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, IdleCause, TraceFile
from rocsolid.rules.recoverable import recoverable

_MIN_LATE_SHARE = 0.1  # of the traced time
_MIN_SHARE = 0.02  # less is only a note
_ASSUMPTION = "every launch comes early enough"
_MIN_REPLAYED_SHARE = 0.5  # of the kernel time
_CAPTURE_ADVICE = "Capture the call in a graph: fast = rs.capture(model)."
_REPLAYED_ADVICE = "Most kernels already run in graph replays: reduce the CPU work between replays, or capture it too."
_GRAPH_LAUNCH_ADVICE = (
    "{in_launch_ms:.2f} of {waited_ms:.2f} ms pass inside the launch of a graph, not between replays: launch the next replay "
    "before the last one ends (no sync in between), and fuse kernels, because a launch takes longer with every node."
)
_OUTLIER = " One gap of {longest_ms:.2f} ms is most of the waiting and is not counted."
_MIN_OUTLIER_SHARE = 0.5  # of all late launches
_PROFILE_ADVICE = "Profile calls that replay the graph: only these show how much time can still be saved."
_CAPTURING = " A graph is being captured: {recorded:,} launches were recorded instead of run, so the device is idle."
_PROBABLY_CAPTURING = (
    " A graph is probably being captured, although the trace does not show its begin and end: {without_work:,} of {launches:,} "
    "launches started no work on any device."
)
_ALSO_CAPTURED = " Another {captured_ms:.2f} ms passed while a graph was captured."
# A few launches without work at the edge of a trace are normal.
_MIN_SHARE_WITHOUT_WORK, _MIN_LAUNCHES_WITHOUT_WORK = 0.5, 20

RULE = Rule(
    code="TRC001",
    name="launch-bound",
    severity=Severity.WARNING,
    message="{subject} waits {waited_ms:.2f} ms of {span_ms:.2f} ms ({share:.0%}) for {gaps} late launches",
    why="The CPU makes {launches} launch calls for {kernels} kernels; {replayed:.0%} of the kernel time is in graph replays.{capture}",
    fix="{advice}{gain}",
    check="rocsolid compare before.json.gz after.json.gz",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report late launches from 10 % of the traced time on; as INFO if a graph capture explains them."""
    late = [idle for idle in device.idle if idle.cause in (IdleCause.LATE_LAUNCH, IdleCause.LAUNCH_IN_PROGRESS)]
    total_ns = sum(idle.time_ns for idle in late)
    captured_ns = sum(idle.capture_ns for idle in late)
    threshold_ns = _MIN_LATE_SHARE * device.span_ns
    if not device.span_ns or total_ns < threshold_ns:
        return
    captures = file.captures
    probably_capturing = not captures.count and captures.launches_without_work >= max(
        _MIN_LAUNCHES_WITHOUT_WORK, _MIN_SHARE_WITHOUT_WORK * captures.launches
    )
    mostly_captures = captures.count > 0 and 2 * captures.recorded_launches > captures.launches
    capturing = total_ns - captured_ns < threshold_ns or probably_capturing or mostly_captures
    waited_ns = total_ns if capturing else total_ns - captured_ns
    longest_ns = max((idle.longest_ns for idle in late), default=0)
    outlier = not capturing and longest_ns > _MIN_OUTLIER_SHARE * waited_ns and sum(i.gap_count for i in late) > 1
    waited_ns -= longest_ns if outlier else 0
    in_call_ns, in_launch_ns = (sum(getattr(i, f"{name}_ns") for i in late) for name in ("in_call", "in_graph_launch"))
    in_call_ns, in_launch_ns = min(in_call_ns, waited_ns), min(in_launch_ns, waited_ns)
    share = waited_ns / device.span_ns
    small = waited_ns < _MIN_SHARE * device.span_ns
    replayed = device.graph_kernel_time_ns / max(device.kernel_time_ns, 1)
    if capturing:
        capture_text, advice = _PROBABLY_CAPTURING if probably_capturing else _CAPTURING, _PROFILE_ADVICE
    else:
        capture_text = _ALSO_CAPTURED if captured_ns else ""
        capture_text += _OUTLIER if outlier else ""
        advice = _REPLAYED_ADVICE if replayed >= _MIN_REPLAYED_SHARE else _CAPTURE_ADVICE
        if in_launch_ns > waited_ns / 2:
            advice = _GRAPH_LAUNCH_ADVICE.format(in_launch_ms=in_launch_ns / 1e6, waited_ms=waited_ns / 1e6)
    gain = recoverable(waited_ns - in_call_ns, waited_ns, _ASSUMPTION)
    yield RULE.found(
        f"device {device.device}",
        severity=Severity.INFO if capturing or small else None,
        location=file.file,
        waited_ms=waited_ns / 1e6,
        span_ms=device.span_ns / 1e6,
        share=share,
        gaps=sum(idle.gap_count for idle in late),
        launches=device.launches.launch_count,
        kernels=device.kernel_count,
        replayed=replayed,
        capture=capture_text.format(
            recorded=captures.recorded_launches,
            without_work=captures.launches_without_work,
            launches=captures.launches,
            captured_ms=captured_ns / 1e6,
            longest_ms=longest_ns / 1e6,
        ),
        advice=advice,
        **({"gain": ""} if capturing else {**gain, "gain": f" {gain['gain']}"}),
    )
