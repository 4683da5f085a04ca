"""The device is busy with matrix products and almost never idle.

## What it does
Looks for devices that are busy nearly all the time, mostly with matrix products, convolutions and attention.

## Why it matters
CUDA graphs remove idle time between kernels. There is almost none here, so a graph does not help.

## Example
    device 0: 97 % busy, 81 % of it gemm

## Use instead
Use smaller dtypes (bf16, fp8), a better library for these shapes, or larger batches that use the GPU better.

## When to allow it
Always: this finding is only for information.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Category, DeviceTrace, TraceFile

_MIN_BUSY_SHARE = 0.9  # of the traced time
_MIN_MATH_SHARE = 0.6  # of the device time
_MATH_CATEGORIES = (Category.GEMM, Category.CONVOLUTION, Category.ATTENTION)

RULE = Rule(
    code="TRC004",
    name="gemm-bound",
    severity=Severity.INFO,
    message="{subject} is busy {busy:.0%} of the time, {math_share:.0%} of it in {categories}",
    why="Graphs cannot save time here: only {idle_ms:.2f} ms of {span_ms:.2f} ms are idle.",
    fix="Make the matrix products cheaper: smaller dtypes, better kernels for these shapes, other batch sizes.",
    check="rocsolid compare before.json.gz after.json.gz",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report a device that is at least 90 % busy, with at least 60 % of it in matrix products, convolutions and attention."""
    total = sum(row.time_ns for row in device.categories)
    math_rows = [row for row in device.categories if row.category in _MATH_CATEGORIES]
    math_share = sum(row.time_ns for row in math_rows) / max(total, 1)
    if device.span_ns and device.busy_ns >= _MIN_BUSY_SHARE * device.span_ns and math_share >= _MIN_MATH_SHARE:
        yield RULE.found(
            f"device {device.device}",
            location=file.file,
            busy=device.busy_ns / device.span_ns,
            math_share=math_share,
            categories=", ".join(row.category.value for row in math_rows),
            idle_ms=device.idle_ns / 1e6,
            span_ms=device.span_ns / 1e6,
        )
