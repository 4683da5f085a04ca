"""The device is busy with matrix products and almost never waits.

## What it does
Looks for devices that are busy nearly all the time, mostly with matrix products, convolutions and attention.

## Why it matters
CUDA graphs remove waits between kernels. There are none here, so capturing will not help.

## Example
    device 0: 97 % busy, 81 % of it gemm

## Use instead
Use smaller dtypes (bf16, fp8), a better library for these shapes, or larger batches that use the GPU better.

## When to allow it
It is for information: graphs will not make this faster.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Category, DeviceTrace, TraceFile

_BUSY, _MATH = 0.9, 0.6
_HEAVY = (Category.GEMM, Category.CONVOLUTION, Category.ATTENTION)

RULE = Rule(
    code="TRC004",
    name="gemm-bound",
    severity=Severity.INFO,
    message="{subject} is busy {busy:.0%} of the time, {heavy:.0%} of it in {words}",
    why="Graphs cannot save time here: only {idle_ms:.2f} ms of {span_ms:.2f} ms are idle.",
    fix="Make the matrix products cheaper: smaller dtypes, better kernels for these shapes, other batch sizes.",
    check="rocsolid compare before.json.gz after.json.gz",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """At least 90 % busy, and at least 60 % of that in matrix products, convolutions and attention."""
    total = sum(row.time_ns for row in device.categories)
    heavy = [row for row in device.categories if row.category in _HEAVY]
    share = sum(row.time_ns for row in heavy) / max(total, 1)
    if device.span_ns and device.busy_ns >= _BUSY * device.span_ns and share >= _MATH:
        yield RULE.found(
            f"device {device.device}",
            location=file.file,
            busy=device.busy_ns / device.span_ns,
            heavy=share,
            words=", ".join(row.category.value for row in heavy),
            idle_ms=device.idle_ns / 1e6,
            span_ms=device.span_ns / 1e6,
        )
