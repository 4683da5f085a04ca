"""Runs `--quick` and `--sweep` of scripts/measure_kernels.py with small shapes in Triton's interpreter, with a clock that is not real.

A separate program, because TRITON_INTERPRET must be set before Triton is imported. The only argument is the table to write.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import kernel_shapes as shapes
from rocsolid.ops.shipped.device import gpu

CASES = (
    shapes.Case(model="m", kind="linear_act", sizes=(3, 64, 40), activation="silu_mul"),
    shapes.Case(model="m", kind="linear_act", sizes=(20, 64, 20), activation="gelu", bias=False, row_major=True),
    shapes.Case(model="m", kind="split_matmul", sizes=(5, 256, 32)),
    shapes.Case(model="m", kind="attention", sizes=(4, 5, 20, 16), mask="padding"),
    shapes.Case(model="m", kind="attention", sizes=(4, 5, 5, 16), mask="causal", kv_heads=2),
    shapes.Case(model="m", kind="attention", sizes=(2, 5, 20, 32), prefix=15),
)


class Compilers(ThreadPoolExecutor):
    """Compiles nothing; the second of all tiles does not fit."""

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Any:
        assert fn is shapes.compile_tile
        return super().submit(lambda: args[1] != shapes.candidates(CASES[0], GPU)[1])


def timed_us(call: Any, inputs: Any) -> float:
    """The last candidate of the first shape is the fastest, and torch is the fastest for the second shape."""
    result = call(inputs[0])
    case = call.args[0]
    error = shapes.relative(result, shapes.exact(case, inputs[0]))
    assert error < 1e-5, (call, error)
    if call.func is shapes.run_torch:
        return 0.5 if case == CASES[1] else 100.0
    return 1.0 if call.keywords["tile"] == shapes.candidates(case, GPU)[-1] else 2.0


GPU = gpu(torch.device("cpu"))._replace(compute_units=4, name="a chip")


def main() -> None:
    candidates = shapes.candidates
    replaced = {"DEVICE": "cpu", "DTYPE": torch.float32, "CASES": CASES, "timed_us": timed_us}
    vars(shapes).update(
        **replaced,
        gpu=lambda _: GPU,
        copies=lambda *_: 2,
        compilers=Compilers,
        candidates=lambda case, chip: [*candidates(case, chip)[:2], candidates(case, chip)[-1]],
    )
    torch.manual_seed(0)
    lines = [*shapes.sweep(60, 2, Path(sys.argv[1])), *shapes.quick(2)]
    print("\n".join(lines))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
