"""Much of the time goes into elementwise kernels that nothing has fused.

## What it does
Adds up the time of elementwise kernels that torch ships, one for each operation.

## Why it matters
Each of them reads its inputs from memory and writes its output back. A compiler that fuses neighbours leaves out most of that traffic.

## Example
    vectorized_elementwise_kernel<4, ...>: 27,120 launches, 41 % of the device time

## Use instead
    model = rs.compile(model)             # Inductor writes one kernel for a chain of them

## When to allow it
When they are the optimizer step, which has fused forms of its own (fused=True).
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Category, DeviceTrace, TraceFile

_SHARE = 0.25

RULE = Rule(
    code="TRC011",
    name="unfused-elementwise",
    severity=Severity.WARNING,
    message="{subject} spends {time_ms:.2f} ms ({share:.0%} of its busy time) in {count} unfused elementwise kernels",
    why="Each reads and writes whole tensors; fused, a chain of them does so once.",
    fix="Compile the model (rs.compile, torch.compile), or use the fused form of the operator.",
    check="Profile again: the kernels are then called triton_poi_fused_...",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """A quarter of the busy time or more in torch's own elementwise kernels."""
    mine = [row for row in device.kernels if row.category is Category.ELEMENTWISE and "at::native" in row.name]
    time = sum(row.total_ns for row in mine)
    if device.busy_ns and time >= _SHARE * device.busy_ns:
        yield RULE.found(
            f"device {device.device}",
            location=file.file,
            time_ms=time / 1e6,
            share=time / device.busy_ns,
            count=sum(row.count for row in mine),
        )
