"""How many kernels Inductor leaves of a transformer layer on an H200, with and without the graph passes. Nothing is run."""

import json
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest
from tests.support import needs_torch

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = pytest.mark.torch
MERGED, ATTENTION, SPLIT, FUSED = "merged_projections", "attention", "split_products", "fused_activations"
ALL = f"{MERGED},{ATTENTION},{SPLIT},{FUSED},packed_attention"
CASES = (
    "bert:",
    f"bert:{MERGED}",
    f"bert:{MERGED},{ATTENTION}",
    f"bert:{ATTENTION},{SPLIT}",
    *(f"{kind}:{ALL}" for kind in ("bert", "gpt2", "vit", "llama", "denoiser")),
    "vit:",
    "vit:packed_attention",
    f"llama:{ALL}:combo_kernels",
    f"bert:{MERGED},autotuned_products",
)


@cache
def kernels() -> dict[str, list[str]]:
    """The kernels of each case; one process lowers them all, because torch can pretend to have a GPU only when it is imported."""
    needs_torch("2.11", "older ones cannot compile fake tensors")
    command = [sys.executable, "-m", "tests.optimize.lowered_kernels", *CASES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def count(case: str, word: str) -> int:
    """How many kernels of a case contain a word, in two layers."""
    return sum(word in name for name in kernels()[case])


def test_merged_projections_are_one_product_and_need_no_copies() -> None:
    assert count("bert:", "addmm") == 12
    for case in (f"bert:{MERGED}", f"bert:{MERGED},{ATTENTION}"):
        assert count(case, "addmm") == 8
        assert count(case, "triton_poi") == 2, kernels()[case]  # GELU


def test_products_are_not_split_where_their_sum_would_be_a_kernel() -> None:
    without, split = (kernels()[f"bert:{passes}"] for passes in ("", f"{ATTENTION},{SPLIT}"))
    assert count(f"bert:{ATTENTION},{SPLIT}", "split_matmul") == 4
    assert sum("triton" in x for x in split) == sum("triton" in x for x in without)


def test_attention_of_torch_copies_nothing() -> None:
    before, after = (Counter(kernels()[f"vit:{passes}"]) for passes in ("", "packed_attention"))
    copies = [name for name in before if "clone" in name]
    assert before.total() - after.total() == 6, (copies, after)
    assert not any("clone" in name for name in after)


@pytest.mark.parametrize(
    ("case", "at_most"),
    [
        (f"bert:{ALL}", 16),
        (f"gpt2:{ALL}", 15),  # one more for the end of the model
        (f"vit:{ALL}", 17),
        (f"llama:{ALL}", 19),
        (f"llama:{ALL}:combo_kernels", 17),
        (f"denoiser:{ALL}", 17),
    ],
)
def test_all_passes_leave_few_kernels(case: str, at_most: int) -> None:
    assert len(kernels()[case]) <= at_most, kernels()[case]
    assert count(case, "linear_act.default") == 4, "Q, K and V; the wide layer and its activation"


def test_only_the_products_that_take_most_of_the_time_are_benchmarked() -> None:
    shapes = set(kernels()[f"bert:{MERGED},autotuned_products searches"])
    widths = {shape.split("[")[-1] for shape in shapes}
    assert widths == {"768, 2304]", "768, 3072]", "3072, 768]"}, "not the product after the attention"
    assert not kernels()[f"bert:{MERGED} searches"]
