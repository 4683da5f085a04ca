"""Lowers a layer that uses our operators for a simulated Hopper GPU, and prints the kernels that Inductor launches.

A separate program, because it must simulate the GPU before torch is imported. The only argument is a folder for files.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rocsolid.catalog.chips import DEFAULT_RELEASE, chip
from rocsolid.torchapi.inductor.lowering import _make_call, _output
from rocsolid.torchapi.pretend.device import build_stub_library, fake_mode, pretend_device

LAUNCHES = (".run(", "extern_kernels.", "= torch.ops.")


def layer(x: Any, query: Any, key: Any, value: Any, out: Any, up: Any) -> Any:
    """Attention, the projection of its result, and the wide layer that follows."""
    import torch

    from rocsolid.ops.linear_act import LINEAR_ACT
    from rocsolid.ops.shipped.operators import ATTENTION

    heads = [(x @ w).view(1, 128, 12, 64).transpose(1, 2) for w in (query, key, value)]
    attended = ATTENTION(*heads).transpose(1, 2).reshape(128, 768)
    return LINEAR_ACT(torch.nn.functional.linear(attended, out), up, None, "gelu")


def merge_products(graph: Any) -> None:
    """Compute the products of one matrix at once. So the strides of the results differ from those that were traced."""
    import torch

    aten = torch.ops.aten
    products = [node for node in graph.nodes if node.target is aten.mm.default][:3]
    with graph.inserting_before(products[0]):

        def call(target: Any, *args: Any) -> Any:
            node = graph.call_function(target, args)
            node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
            return node

        weights = call(aten.cat.default, [node.args[1] for node in products], 1)
        merged = call(aten.mm.default, products[0].args[0], weights)
        for index, node in enumerate(products):
            node.replace_all_uses_with(call(aten.slice.Tensor, merged, 1, 768 * index, 768 * (index + 1)))
    graph.eliminate_dead_code()


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    target = chip("sm_90")
    torch = pretend_device(target, DEFAULT_RELEASE[target.platform], build_stub_library(folder))
    from torch._inductor.custom_graph_pass import CustomGraphPass
    from torch._inductor.graph import GraphLowering

    codes = []

    def keep_code(self: Any) -> Any:
        codes.append(self.codegen()[0].value)
        return SimpleNamespace(
            call=_make_call([_output(v, self.sizevars) for v in self.graph_outputs]), __file__="code.py"
        )

    class Pass(CustomGraphPass):  # type: ignore[misc]
        def __call__(self, graph: Any) -> None:
            with torch._guards.detect_fake_mode([n.meta.get("val") for n in graph.nodes]):
                merge_products(graph)

        def uuid(self) -> str:
            return "merge_products"

    GraphLowering.compile_to_module = keep_code
    with fake_mode(), torch.no_grad():
        inputs = [
            torch.empty(rows, 768, device="cuda", dtype=torch.bfloat16) for rows in (128, 768, 768, 768, 768, 3072)
        ]
        torch.compile(layer, options={"post_grad_custom_pre_pass": Pass()})(*inputs)
    for line in codes[0].partition("def call(")[2].splitlines():
        if any(launch in line for launch in LAUNCHES):
            print(line.strip().partition("(")[0].rpartition(" ")[2])  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
