"""The check that compares the resources of every shipped kernel with those that a dry run predicts."""

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from triton.runtime.jit import JITFunction

from rocsolid.api.dryrun import dryrun_kernels
from rocsolid.catalog.chips import chip
from rocsolid.dryrun.kernel_signature import parse_signature
from rocsolid.ops.shipped import kernels
from rocsolid.prove import gpu
from rocsolid.prove.check import CannotDecide

pytestmark = pytest.mark.torch
SHIPPED = [
    "rms_norm_kernel",
    "add_rms_norm_kernel",
    "gate_mul_kernel",
    "attention_kernel",
    "join_splits_kernel",
    "split_matmul_kernel",
    "linear_act_kernel",
]


def test_every_shipped_kernel_is_launched_as_a_dry_run_compiles_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(JITFunction, "run", lambda self, *_, **__: self.__name__)  # there is no GPU to run it
    launches = gpu.launch_shipped_kernels("cpu")
    record = dryrun_kernels(
        kernels.__file__,
        "gfx942",
        signatures=[parse_signature(launch.signature) for launch in launches],
        only=SHIPPED,
        cache=tmp_path,
    )

    assert [launch.made for launch in launches] == SHIPPED
    assert [n for n, v in vars(kernels).items() if isinstance(v, JITFunction) and n.endswith("_kernel")] == SHIPPED
    assert launches[0].signature == (
        "rms_norm_kernel(x=*fp16, weight=*fp16, out=*fp16, x_row_stride=i32, columns=i32, eps=fp32, BLOCK=1024, num_warps=4)"
    )
    for name in SHIPPED:
        (config,) = record.runs[0].kernel(name).configs
        assert config.resources, config.error


def library(groups: int, code: int) -> Any:
    def answer(pointer: Any, function: Any, threads: Any, shared: Any) -> int:
        assert (function.value, threads.value, shared.value) == (77, 256, 512)
        pointer._obj.value = groups
        return code

    return lambda _: SimpleNamespace(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor=answer)


def test_occupancy_is_asked_from_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(function=77, metadata=SimpleNamespace(num_warps=4, shared=512))
    monkeypatch.setattr(ctypes, "CDLL", library(groups=6, code=0))
    assert gpu._waves_per_simd(made, chip("gfx942")) == 6
    monkeypatch.setattr(ctypes, "CDLL", library(groups=6, code=1))
    with pytest.raises(CannotDecide, match="failed with error 1"):
        gpu._waves_per_simd(made, chip("gfx942"))
