"""Several matrix products in a row read the same input, and could be one.

## What it does
Looks for matrix products that follow each other directly and have the same rows and inner size, such as the query, key and
value projections of attention, or gate and up projections. Inputs with more than 1024 rows are left out: such products fill a
GPU alone. Reports the others if one product instead could save at least 2 % of the traced time.

## Why it matters
Each product has its own launch, reads the input again, and fills the GPU worse than one product with all columns. With small
batches, one product takes about as long as the longest of them.

## Example
    3 matrix products with inputs of 8x64 follow each other 10 times: 30.00 ms

## Use instead
    self.qkv = nn.Linear(dim, 3 * dim)            # instead of self.q, self.k, self.v
    q, k, v = self.qkv(x).chunk(3, dim=-1)

Libraries have switches for it, such as `pipe.fuse_qkv_projections()` in diffusers.

## When to allow it
When the products do not read the same tensor: shapes are all that a trace shows. Also when weights of different types or adapters
keep them apart.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple

from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.trace import Category, DeviceTrace, OperatorRow, TraceFile
from rocsolid.rules.recoverable import recoverable

_PRODUCTS = {"aten::linear": 0, "aten::mm": 0, "aten::addmm": 1}  # the position of the input among the shapes
_REACHABLE = 0.8  # of the roofline
_MIN_SAVED_SHARE = 0.02  # of the traced time
_MAX_ROWS = 1024  # products of larger inputs fill a GPU alone

RULE = Rule(
    code="TRC015",
    name="unmerged-projections",
    severity=Severity.WARNING,
    message="{products} matrix products with inputs of {shape} follow each other {times}: {time_ms:.2f} ms",
    why="If they read the same tensor, one product with all columns does the same with one launch, and reads it once.",
    fix="Merge their weights into one linear layer and split its result, as with query, key and value. {gain}",
    check="rocsolid compare before.json.gz after.json.gz",
    since="0.1",
)


class _Product(NamedTuple):
    row: OperatorRow
    input_shape: str
    time_ns: int


def check_trace(file: TraceFile, device: DeviceTrace) -> Iterator[Finding]:
    """Report products with the same input shape that follow each other, if merging them saves at least 2 % of the traced time."""
    runs = list(_runs(device))
    backward = {_transposed(_input_shape(row)) for row in device.operators}
    for key, number in Counter((run[0].input_shape, len(run)) for run in runs).items():
        same = [run for run in runs if (run[0].input_shape, len(run)) == key]
        if any(product.row.name == "aten::mm" for product in same[0]) and key[0] in backward:
            continue  # a training step: gradients of two layers, which do not read the same tensor
        saved_ns = sum(map(_saved_ns, same))
        if saved_ns >= _MIN_SAVED_SHARE * device.span_ns:
            yield RULE.found(
                f"device {device.device}, {key[1]} products of {key[0]}",
                location=file.file,
                products=key[1],
                shape=key[0],
                times="once" if number == 1 else f"{number} times",
                time_ms=sum(product.time_ns for run in same for product in run) / 1e6,
                **recoverable(
                    0, saved_ns, "they read the same tensor, and one product takes as long as the longest of them"
                ),
            )


def _runs(device: DeviceTrace) -> Iterator[list[_Product]]:
    """Yield two or more products that follow each other directly and have the same input shape."""
    rows, order = device.operators, device.order
    events = zip(order.operator, order.time_ns, strict=True)
    products = [(rows[index], _input_shape(rows[index]), time_ns) for index, time_ns in events]
    for (shape, _), members in groupby(products, key=lambda event: (event[1], event[0].element_type)):
        run = list(_calls(list(members))) if shape else []
        if len(run) > 1:
            yield run


def _calls(events: Sequence[tuple[OperatorRow, str, int]]) -> Iterator[_Product]:
    """Join the device events of each call: a product may launch a second kernel that adds up parts."""
    for row, members in groupby(events, key=lambda event: event[0]):
        times = [time_ns for _, _, time_ns in members]
        per_call = max(1, round(row.count / row.calls)) if row.calls else 1
        for first in range(0, len(times), per_call):
            yield _Product(row, _input_shape(row), sum(times[first : first + per_call]))


def _saved_ns(run: Sequence[_Product]) -> float:
    """What one product can save: it takes at least as long as the longest, and as 80 % of the roofline allow for all."""
    total = sum(product.time_ns for product in run)
    least = sum(product.time_ns * (product.row.roofline or 0.0) for product in run) / _REACHABLE
    return total - max(least, *(product.time_ns for product in run))


def _input_shape(row: OperatorRow) -> str:
    """The shape of the input of a product with weights; empty for other operators, and for large inputs."""
    shapes = row.shape.split(", ")
    position = _PRODUCTS.get(row.name, len(shapes))
    shape = shapes[position] if row.category is Category.GEMM and position < len(shapes) else ""
    sizes = shape.split("x")[:-1]
    return shape if sizes and all(map(str.isdigit, sizes)) and prod(map(int, sizes)) <= _MAX_ROWS else ""


def _transposed(shape: str) -> str:
    return "x".join(reversed(shape.split("x")))
