"""An operator takes much longer than its FLOPs and bytes need on this GPU.

## What it does
Compares the time of each operator with the roofline: the longer of FLOPs / peak and bytes / bandwidth, from the shapes
that the profiler recorded. Reports the operators that could save at least 5 % of the traced time at 80 % of the roofline.

## Why it matters
Idle time is not all that can be saved. A busy GPU can spend most of its time in kernels that suit the shapes badly.

## Example
    aten::_flash_attention_forward 16x559x16x64 takes 3.91 ms, 8 % of its roofline

## Use instead
    rocsolid tune work.py:build       # tries autotuned kernels for matrix products, among other settings
    fast = rs.optimize(model, x)      # fuses elementwise work and copies; captures what is bound by launches

## When to allow it
When the shapes are tiny: a kernel of a few microseconds is bound by its launch, and the roofline does not apply.
"""

from collections.abc import Iterator

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Category, DeviceTrace, OperatorRow, TraceFile
from rocsolid.rules.recoverable import recoverable

_REACHABLE = 0.8  # of the roofline
_MIN_SAVED_SHARE = 0.05  # of the traced time
_MIN_MEAN_NS = 10_000  # shorter kernels are bound by their launch
_MAX_FINDINGS = 3
_SKINNY = 64  # rows or columns
_ADVICE = {
    Category.GEMM: "rocsolid tune tries autotuned kernels for it (inductor.max_autotune_gemm).",
    Category.ATTENTION: "Check that mask and dtype allow the flash path of F.scaled_dot_product_attention.",
    Category.CONVOLUTION: "Use channels_last and let MIOpen or cuDNN search (torch.backends.cudnn.benchmark).",
    Category.COPY: "rs.optimize fuses copies between elementwise kernels; keep one memory layout to avoid the others.",
}
_FUSE = "rs.optimize or rs.compile fuses it with its neighbours."
_MATH_ATTENTION = "This is attention on the math path: call F.scaled_dot_product_attention."
_SKINNY_ADVICE = "The matrix product is skinny and bound by memory: rocsolid tune tries autotuned kernels for it, and a larger batch costs little."

RULE = Rule(
    code="TRC014",
    name="below-roofline",
    severity=Severity.WARNING,
    message="{operator} takes {time_ms:.2f} ms on device {device}, {roofline:.0%} of its roofline",
    why="{calls} calls with inputs {shape} ({type}) need at least {least_ms:.2f} ms on {chip}; the kernel is {kernel}.",
    fix="{advice} {gain}",
    check="rocsolid compare before.json.gz after.json.gz",
    since="0.1",
)


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report the operators that could save at least 5 % of the traced time at 80 % of their roofline."""
    rows = [row for row in device.operators if row.roofline is not None and _saved_ns(row) > 0]
    rows = [row for row in rows if _saved_ns(row) >= _MIN_SAVED_SHARE * device.span_ns]
    for row in sorted(rows, key=_saved_ns, reverse=True)[:_MAX_FINDINGS]:
        yield RULE.found(
            f"device {device.device}, {row.name} {row.shape}",
            location=file.file,
            operator=row.name,
            device=device.device,
            time_ms=row.device_ns / 1e6,
            roofline=row.roofline,
            calls=row.calls,
            shape=row.shape,
            type=row.element_type,
            least_ms=(row.roofline or 0) * row.device_ns / 1e6,
            chip=device.peaks.chip if device.peaks else "this GPU",
            kernel=row.kernels[0].name[:80] if row.kernels else "unknown",
            advice=_advice(row),
            **recoverable(0, _saved_ns(row), f"a kernel reaches {_REACHABLE:.0%} of the roofline for this shape"),
        )


def _saved_ns(row: OperatorRow) -> float:
    if row.count and row.device_ns / row.count < _MIN_MEAN_NS:
        return 0.0
    return row.device_ns * (1 - (row.roofline or 0) / _REACHABLE)


def _advice(row: OperatorRow) -> str:
    first = row.shape.split(",")[0].split("x")
    square = len(first) == 4 and first[2] == first[3]  # noqa: PLR2004 - batch, heads, queries, keys
    if row.name == "aten::_softmax" and square:
        return _MATH_ATTENTION
    if row.category is Category.GEMM and first[0].isdigit() and int(first[0]) <= _SKINNY:
        return _SKINNY_ADVICE
    return _ADVICE.get(row.category, _FUSE)
