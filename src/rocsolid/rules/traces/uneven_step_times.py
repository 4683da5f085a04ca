"""Some profiler steps take much longer than others.

## What it does
Compares the longest profiler step with the median.

## Why it matters
A mean over such steps is misleading. First find what slows some of them: recompiles, allocation, the data loader,
another program.

## Example
    ProfilerStep#7 takes 210 ms, the other steps take 80 ms

## Use instead
Run `rocsolid trace` on one slow and one fast step, then `rocsolid compare`.

## When to allow it
When steps differ on purpose, for example because of evaluation or checkpoints.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile

_MIN_STEPS = 3
_MIN_RATIO = 1.5  # of the longest step to the median

RULE = Rule(
    code="TRC010",
    name="uneven-step-times",
    severity=Severity.INFO,
    message="{subject}: {name} took {longest_ms:.2f} ms; the median of {count} steps is {median_ms:.2f} ms",
    why="Averages hide what slows down only some steps.",
    fix="Look at that step alone: recompiles, allocation, the data loader, another program on the machine.",
    check="rocsolid trace {file}   (with more profiled steps)",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace | None) -> Iterator[Finding]:
    """Report a step that is at least 1.5 times as long as the median of three or more steps."""
    if device is not None or len(file.steps) < _MIN_STEPS:
        return
    times = sorted(step.total_ns for step in file.steps)
    median = times[len(times) // 2]
    longest = max(file.steps, key=lambda step: step.total_ns)
    if longest.total_ns >= _MIN_RATIO * median:
        yield RULE.found(
            file.file,
            location=file.file,
            name=longest.name,
            longest_ms=longest.total_ns / 1e6,
            median_ms=median / 1e6,
            count=len(times),
        )
