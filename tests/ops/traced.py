"""Traces every operator with fake tensors on a simulated AMD GPU, and prints the graph that the compiler would get.

A separate program, because it gives Triton a driver that knows only the chip's name, and lets fake tensors be on `cuda`.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch._subclasses import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from triton.backends.compiler import GPUTarget

from rocsolid.ops import shipped
from rocsolid.ops.shipped import launch, operators
from rocsolid.ops.shipped.device import Gpu


class Driver:
    """The part of a Triton driver that analysing a kernel needs."""

    def get_current_target(self) -> Any:
        return GPUTarget("hip", "gfx942", 64)

    def get_current_device(self) -> int:
        return 0


def traced(name: str, shapes: Sequence[tuple[int, ...]], rest: tuple[Any, ...], *, dynamic: bool) -> dict[str, Any]:
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def fake_tensor(shape: tuple[int, ...]) -> Any:
        kind = DimDynamic.DYNAMIC if dynamic else DimDynamic.STATIC
        sizes = StatelessSymbolicContext(dynamic_sizes=[kind] * len(shape))
        like = mode.from_tensor(torch.empty(shape, device="meta"), symbolic_context=sizes)
        return torch.empty(like.shape, device="cuda", dtype=torch.bfloat16)

    operator = getattr(torch.ops.rocsolid, name)
    with mode:
        inputs = [fake_tensor(shape) for shape in shapes]
        graph = make_fx(dispatch_functionalize(lambda *given: operator(*given, *rest)))(*inputs)
    kernels = [node for node in graph.graph.nodes if "triton_kernel" in str(node.target)]
    return {
        "operator": name,
        "dynamic": dynamic,
        "written": [list(node.kwargs["tensors_to_clone"]) for node in kernels],
    }


def main() -> None:
    FakeTensorMode.avoid_device_init = property(lambda _self: True)
    triton.runtime.driver.set_active(Driver())
    for module in (operators, launch):
        vars(module)["gpu"] = lambda _device: Gpu(64, 304, is_rdna=False)
    assert shipped.__all__
    row, wide, column = (50, 1024), (50, 4096), (1024,)
    for dynamic in (False, True):
        for name, shapes, rest in (
            ("rms_norm", [row, column], (1e-6,)),
            ("add_rms_norm", [row, row, column], (1e-6,)),
            ("silu_mul", [wide, wide], ()),
            ("gelu_mul", [wide, wide], (True,)),
        ):
            print(json.dumps(traced(name, shapes, rest, dynamic=dynamic)))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
