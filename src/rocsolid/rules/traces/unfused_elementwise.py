"""Much of the GPU time goes into elementwise kernels that are not fused.

## What it does
Adds up the time of torch's own elementwise kernels, each of which computes one operation.

## Why it matters
Each kernel reads its inputs from memory and writes its output back. A compiler that fuses neighbouring operations
avoids most of that traffic.

## Example
    vectorized_elementwise_kernel<4, ...>: 27,120 launches, 41 % of the device time

## Use instead
    model = rs.compile(model)             # Inductor generates one kernel for a chain of operations

## When to allow it
When the kernels belong to the optimizer step: optimizers have their own fused version (fused=True).
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Category, DeviceTrace, TraceFile
from rocsolid.rules.recoverable import recoverable

_MIN_UNFUSED_SHARE = 0.25  # of the busy time

RULE = Rule(
    code="TRC011",
    name="unfused-elementwise",
    severity=Severity.WARNING,
    message="{subject}: {time_ms:.2f} ms ({share:.0%} of busy time) in {count} unfused elementwise kernels",
    why="Each kernel reads and writes whole tensors. A fused kernel does so once for a chain of operations.",
    fix="Compile the model (rs.compile or torch.compile), or use the fused version of the operator. Most time: {culprit}. {gain}",
    check="Profile again: the kernels are then called triton_poi_fused_...",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report torch's own elementwise kernels from 25 % of the busy time on."""
    kernels = [row for row in device.kernels if row.category is Category.ELEMENTWISE and "at::native" in row.name]
    time_ns = sum(row.total_ns for row in kernels)
    if device.busy_ns and time_ns >= _MIN_UNFUSED_SHARE * device.busy_ns:
        yield RULE.found(
            f"device {device.device}",
            location=file.file,
            time_ms=time_ns / 1e6,
            share=time_ns / device.busy_ns,
            count=sum(row.count for row in kernels),
            culprit=max(kernels, key=lambda row: row.total_ns).operator or "an unknown operator",
            **recoverable(time_ns / 3, time_ns * 2 / 3, "each fused kernel replaces three of them"),
        )
