"""Much of the CPU time goes into calls of operators that are too short to be worth a call.

## What it does
In a trace without GPU work, adds up the operators whose calls take less than 20 µs on average.

## Why it matters
Python and torch's dispatcher need some microseconds for every operator, whatever its size. For short operators that is
most of the time.

## Example
    aten::add: 20,000 calls of 3 µs, in a loop over rows

## Use instead
    y = x.cumsum(0)                       # one operator instead of a loop
    step = torch.compile(step)            # or one C++ kernel for a chain of operations

## When to allow it
When the loop cannot be avoided and the program is fast enough.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import DeviceTrace, TraceFile

_SHORT_NS = 20_000  # a call that takes less is mostly the cost of calling
_MIN_CALLS = 1000
_MIN_SHARE = 0.3  # of the busy time

RULE = Rule(
    code="TRC016",
    name="small-cpu-operators",
    severity=Severity.WARNING,
    message="{subject}: {calls:,} operator calls of {mean_us:.1f} µs on average take {share:.0%} of the time in operators",
    why="Python and torch's dispatcher need some microseconds for every call, whatever the size of its tensors. Outside "
    "operators, mostly in Python, the program spent {outside:.0%} of {span_ms:.1f} ms.",
    fix="Replace loops over small tensors by operators on whole tensors, or compile the function (rs.compile or torch.compile). "
    "Most time: {culprit}.",
    check="rocsolid profile WORKLOAD --stacks   (shows the lines that call them)",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace | None) -> Iterator[Finding]:
    """Report operators shorter than 20 µs from 30 % of the time in operators on."""
    if device is not None or file.cpu is None or not file.cpu.span_ns:
        return
    short = [row for row in file.cpu.operators if row.calls and row.total_ns < _SHORT_NS * row.calls]
    calls, own_ns = sum(row.calls for row in short), sum(row.own_ns for row in short)
    if calls >= _MIN_CALLS and own_ns >= _MIN_SHARE * file.cpu.busy_ns:
        yield RULE.found(
            file.file,
            location=file.file,
            calls=calls,
            mean_us=own_ns / calls / 1e3,
            share=min(own_ns / file.cpu.busy_ns, 1.0),
            outside=1 - file.cpu.busy_ns / file.cpu.span_ns,
            span_ms=file.cpu.span_ns / 1e6,
            culprit=max(short, key=lambda row: row.own_ns).name,
        )
