"""There are gaps between the kernels of one graph replay.

## What it does
Adds up the gaps between two kernels of the same graph launch.

## Why it matters
The CPU cannot cause gaps inside a replay. Either a kernel cannot start before another one has ended, or the profiler
causes the gaps: it may insert a marker between kernels that otherwise run back to back.

## Example
    1 hipGraphLaunch, 544 kernels, 543 gaps

## Use instead
Before you rely on these gaps, time the replay without the profiler, with `rocsolid ab` or CUDA events.

## When to allow it
When the replay, timed without the profiler, takes only about as long as the busy time: then the gaps are not real.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, IdleCause, TraceFile

_MIN_IDLE_SHARE = 0.05  # of the traced time

RULE = Rule(
    code="TRC009",
    name="gaps-inside-replay",
    severity=Severity.INFO,
    message="{subject} is idle for {waited_ms:.2f} ms ({share:.0%}) between kernels of one graph replay",
    why="The CPU cannot cause these gaps. They come from dependencies between kernels, or from the profiler.",
    fix="Time the replay without the profiler. If the gaps are real, look for long chains of tiny kernels.",
    check="Time the replay with CUDA events and compare with its span in the trace",
    since="0.1",
    evidence=(
        issue(
            "AMD-AGI/TraceLens#728",
            "In a decode step replayed from a graph, 26 % idle time turned out to be a measurement artefact.",
        ),
    ),
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report these gaps from 5 % of the traced time on."""
    for idle in device.idle:
        if idle.cause is IdleCause.BETWEEN_GRAPH_NODES and idle.time_ns >= _MIN_IDLE_SHARE * device.span_ns:
            yield RULE.found(
                f"device {device.device}",
                location=file.file,
                waited_ms=idle.time_ns / 1e6,
                share=idle.time_ns / device.span_ns,
            )
