"""Kernels that a program launches itself: autotuned, with heuristics, in autograd functions and custom operators."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.support import in_ci, needs_torch

import rocsolid as rs
from rocsolid.dryrun.user_kernels import best
from rocsolid.model.dryrun import DryRun, DryRunKernel, DryRunRecord, KernelConfig, Resources

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("triton") is None and not in_ci(), reason="Triton is not installed"),
]

KERNELS = """
import torch
import triton
import triton.language as tl


def at_most(limit):
    return lambda configs, args, **_: [c for c in configs if c.kwargs["BLOCK"] <= limit]


@triton.constexpr_function
def half(n):
    return n // 2


@triton.jit
def squared(v):
    return v * v


@triton.autotune(
    [triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 512, 4096) for w in (2, 4)],
    key=["n"],
    prune_configs_by={"early_config_prune": at_most(512)},
    reset_to_zero=["y"],
    cache_results=True,
)
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, squared(tl.load(x + i, mask=i < n)), mask=i < n)


@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is not None, "BLOCK": lambda args: 2 * args["n"]})
@triton.jit
def biased(x, bias, y, n, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, half(BLOCK))
    v = tl.load(x + i)
    if HAS_BIAS:
        v += tl.load(bias + i)
    tl.store(y + i, v)


@triton.jit
def counted(x, y, ROUNDS: tl.constexpr):
    i = tl.arange(0, 256)
    v = tl.load(x + i)
    for _ in tl.static_range(ROUNDS):
        v += 1
    tl.store(y + i, v)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        return y

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        biased[(1,)](x, None, out, x.numel())
        return out


@torch.library.custom_op("rocsolid_test::counted_op", mutates_args=())
def counted_op(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    counted[(1,)](x, y, ROUNDS=3, num_warps=1)
    return y


@counted_op.register_fake
def _(x):
    return torch.empty_like(x)


@torch.compiler.disable
def outside_a_graph(x):
    return Squared.apply(x)


def trained():
    def step(x):
        y = outside_a_graph(x)
        return counted_op(y.detach()) + y

    return step, (torch.randn(256, requires_grad=True),), {}


def by_value():
    def call(x):
        kernel = counted.warmup(torch.float32, torch.float32, ROUNDS=1, grid=(1,))
        kernel._init_handles()
        assert 0 < kernel.n_regs < 100
        y = torch.zeros_like(x)
        counted[(1,)](x, y, ROUNDS=2)
        rounds = int(y[0].item())  # 1 + 2, which only the kernel knows
        if x.is_cuda and x.device.type == "cuda":
            counted[(1,)](x, torch.empty(256, device="cuda"), ROUNDS=rounds)
        return y

    return torch.compiler.disable(call), (torch.ones(256),), {}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launched")
    (folder / "w.py").write_text(KERNELS)
    return folder


def dry(folder: Path, name: str, **options: Any) -> DryRunRecord:
    needs_torch("2.11", "older ones cannot compile fake tensors")
    return rs.dryrun(f"{folder / 'w.py'}:{name}", cache=folder / "cache", **options)


@pytest.fixture(scope="module")
def trained(folder: Path) -> DryRun:
    return dry(folder, "trained", train=True).runs[0]


def compiled(run: DryRun, name: str) -> DryRunKernel:
    kernel = run.kernel(name)
    assert [config.error for config in kernel.configs if config.error] == []
    assert kernel.origin == "user"
    return kernel


def test_an_autotuned_kernel_is_compiled_in_every_configuration_that_its_own_pruning_leaves(trained: DryRun) -> None:
    configs = compiled(trained, "tuned").configs

    assert [(config.values["BLOCK"], config.warps) for config in configs] == [(256, 2), (256, 4), (512, 2), (512, 4)]
    assert configs[0].grid == (1,)
    assert all(config.resources and config.resources.registers for config in configs)


def test_heuristics_and_constexpr_functions_are_evaluated(trained: DryRun) -> None:
    (config,) = compiled(trained, "biased").configs

    assert (config.values["HAS_BIAS"], config.values["BLOCK"]) == (False, 512)


def test_the_kernel_of_a_custom_operator_is_compiled(trained: DryRun) -> None:
    (config,) = compiled(trained, "counted").configs

    assert (config.values["ROUNDS"], config.warps) == (3, 1)


def test_a_second_run_with_cached_timings_lists_the_same_configurations(folder: Path, trained: DryRun) -> None:
    (again,) = dry(folder, "trained").runs

    assert again.kernel("tuned").configs[-1].label == trained.kernel("tuned").configs[-1].label


def test_the_best_configuration_fits_and_spills_least() -> None:
    fitting = Resources(registers=9, lds_limit_bytes=8, occupancy=2)
    spilling, large = replace(fitting, spills=1, occupancy=8), replace(fitting, lds_bytes=9, occupancy=8)
    configs = [KernelConfig(error="failed"), *(KernelConfig(resources=used) for used in (large, spilling, fitting))]

    assert best(configs).resources == fitting
    assert best(configs[:1]).error == "failed"


def test_a_launch_that_depends_on_values_is_recorded_on_the_cpu(folder: Path) -> None:
    (run,) = dry(folder, "by_value").runs

    found = [config.values["ROUNDS"] for kernel in run.kernels for config in compiled(run, kernel.name).configs]
    assert sorted(map(str, found)) == ["2", "3"]  # the first one in a graph, up to the line that needs the value
    (note,) = run.notes
    assert "needs real values" in note
    assert note.endswith("except the Triton kernels that the workload launches when it runs on the CPU")
