"""A model traced and compiled for GPUs that are not present; the tests share one trace."""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benchmarks.object_files import code_bytes, metadata
from tests.support import clean_environ, in_ci, needs_torch, run_python, running

import rocsolid as rs
from rocsolid.errors import CannotRunError, InputError, TimedOutError, UnknownNameError, UsageError
from rocsolid.model.dryrun import DryRun, DryRunRecord

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("triton") is None and not in_ci(), reason="Triton is not installed"),
]

WORKLOADS = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def doubled(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) * 2)


def rms():
    def norm(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    return norm, (torch.randn(8, 4096, 2048, dtype=torch.bfloat16), torch.ones(2048, dtype=torch.bfloat16)), {}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.table = nn.Parameter(torch.ones(8, 16))
        self.head = nn.Linear(16, 16, bias=False)
        self.head.weight = nn.Parameter(torch.ones(16, 16))
        self.again = nn.Linear(16, 16, bias=False)
        self.again.weight = self.head.weight

    def forward(self, x):
        y = torch.relu(self.conv(x)).mean((2, 3)) @ self.table
        return self.again(self.head(y)).softmax(-1)


def net():
    torch.manual_seed(0)
    return Net().to(torch.bfloat16), (torch.randn(2, 3, 16, 16, dtype=torch.bfloat16),), {}


def mixed():
    def call(x):
        y = torch.empty_like(x)
        doubled[(x.numel() // 32,)](x, y, BLOCK=32, num_warps=1)
        print("a graph break")
        z = y.cpu().to(y.device)
        return z[z > 0]

    return call, (torch.randn(4096),), {}


def idle():
    return (lambda x: 3), (torch.randn(4),), {}


def wrong():
    def call(x):
        return x @ torch.ones(3, 5)

    return call, (torch.randn(4, 4),), {}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dryrun")
    (folder / "w.py").write_text(WORKLOADS)
    return folder


def dry(folder: Path, name: str, target: str = "gfx942", **options: Any) -> DryRunRecord:
    needs_torch("2.11", "older ones cannot compile fake tensors")
    return rs.dryrun(f"{folder / 'w.py'}:{name}", target=target, cache=folder / "cache", **options)


@pytest.fixture(scope="module")
def rms(folder: Path) -> DryRunRecord:
    return dry(folder, "rms", save=folder / "kept", asm=True, compare="cuda")


@pytest.fixture(scope="module")
def net(folder: Path) -> DryRunRecord:
    return dry(folder, "net", train=True)


def test_rmsnorm_compiles_to_the_kernel_of_a_real_mi300x(rms: DryRunRecord) -> None:
    """Expected values from a profiler trace of an MI300X with ROCm 7.2 (TraceLens, torch_compile_triton)."""
    (kernel,) = rms.runs[0].kernels
    (config,) = kernel.configs

    assert kernel.name == "triton_red_fused_add_mean_mul_pow_rsqrt_0"
    assert dict(config.values) == {"XBLOCK": 2, "R0_BLOCK": 2048}
    assert (config.warps, config.stages, config.grid) == (8, 1, (16384,))
    assert kernel.locations[0].endswith("w.py:16")


def test_figures_match_the_object_file(rms: DryRunRecord, folder: Path) -> None:
    """The ELF note that the loader reads, instead of the text of the assembly."""
    (config,) = rms.runs[0].kernels[0].configs
    used = config.resources
    (object_file,) = (folder / "kept" / "gfx942").glob("*.hsaco")
    (kernel,) = metadata(object_file.read_bytes())["amdhsa.kernels"]

    assert used
    assert used.registers == kernel[".vgpr_count"]
    assert used.matrix_registers == kernel[".agpr_count"]
    assert used.scalar_registers == kernel[".sgpr_count"]
    assert used.spills == kernel[".vgpr_spill_count"]
    assert used.scalar_spills == kernel[".sgpr_spill_count"]
    assert used.scratch_bytes == kernel[".private_segment_fixed_size"]
    assert used.wavefront == kernel[".wavefront_size"]
    assert used.code_bytes == code_bytes(object_file.read_bytes(), kernel[".name"])
    assert used.block == 4096
    assert config.asm.count("s_endpgm") >= 1
    assert {file.suffix for file in (folder / "kept" / "gfx942").iterdir()} >= {
        ".ttir",
        ".llir",
        ".amdgcn",
        ".hsaco",
        ".json",
    }


def test_compares_with_the_other_vendor(rms: DryRunRecord) -> None:
    assert rms.compared
    (kernel,) = rms.compared.kernels

    assert (rms.compared.target, kernel.name) == ("sm_90", rms.runs[0].kernels[0].name)
    assert all(config.resources and config.resources.wavefront == 32 for config in kernel.configs)
    assert all(config.resources and config.resources.registers > 8 for config in kernel.configs)


def test_training_compiles_forward_and_backward(net: DryRunRecord) -> None:
    (run,) = net.runs
    libraries = {extern.name: extern.library for graph in run.graphs for extern in graph.externs}

    assert [graph.kind for graph in run.graphs] == ["forward", "backward"]
    assert libraries["convolution"] == "MIOpen"
    assert libraries["mm"] == "hipBLASLt or rocBLAS"
    assert all(not graph.capture_blockers and graph.nodes for graph in run.graphs)
    assert run.notes == ()  # parameters are converted without their values
    assert_all_compiled(run)


def test_finds_library_calls_that_are_unsafe_in_a_capture(net: DryRunRecord) -> None:
    found = [f for f in net.findings if f.code == "DRY008" and "MIOpen" in f.subject]

    assert found
    assert all(f.location.endswith("w.py:32") for f in found)
    assert all(f.severity.name == "WARNING" for f in found)


def test_a_record_survives_json(net: DryRunRecord) -> None:
    from rocsolid.cli.records import read_record
    from rocsolid.report.dryrun_text import dryrun_json

    back = read_record(dryrun_json(net), "x")

    assert isinstance(back, DryRunRecord)
    assert back.runs == net.runs
    assert [f.key for f in back.findings] == [f.key for f in net.findings]


def test_reports_breaks_user_kernels_and_capture_blockers(folder: Path) -> None:
    """On RDNA, whose wavefront of 32 fits the block."""
    record = dry(folder, "mixed", "gfx1100")
    (run,) = record.runs
    kernel = run.kernel("doubled_0")

    assert (kernel.origin, kernel.locations[0].rpartition("/")[2]) == ("user", "w.py:8")
    assert kernel.configs[0].resources
    assert kernel.configs[0].resources.lanes_used == 1
    assert [graph_break.location.rpartition("/")[2] for graph_break in run.breaks] == ["w.py:45", "w.py:47"]
    (unfit,) = [f for f in record.findings if f.code == "DRY011"]
    assert unfit.location.endswith("w.py:46")
    assert "is on the CPU" in unfit.message
    (note,) = run.notes
    assert "needs real values; the rest was not compiled" in note
    assert "w.py:47" in note


def test_a_workload_that_compiles_nothing_gets_a_note(folder: Path) -> None:
    (run,) = dry(folder, "idle").runs

    assert run.kernels == ()
    assert run.notes == ("nothing was compiled: torch.compile found no tensor operation in the workload",)


def test_a_workload_that_cannot_be_traced_is_a_one_line_error(folder: Path) -> None:
    with pytest.raises(CannotRunError) as error:
        dry(folder, "wrong")

    assert f"w.py:wrong cannot be traced at {folder / 'w.py'}:58: RuntimeError" in str(error.value)
    assert "same reduction dim" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_deadline_ends_the_child_process(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # identifies the child process by its files
    with pytest.raises(TimedOutError, match=r"exceeded its deadline of 0\.5 s while tracing"):
        dry(folder, "net", deadline_s=0.5)

    assert not running(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_wrong_names_are_errors_before_anything_starts(folder: Path) -> None:
    with pytest.raises(UnknownNameError, match="'gfx943'; did you mean 'gfx942'"):
        dry(folder, "net", "gfx943")
    with pytest.raises(UsageError, match="mode='fast' is not a valid value; choose one of default, reduce-overhead"):
        dry(folder, "net", mode="fast")
    with pytest.raises(UsageError, match=r"workload .*file\.py:function"):
        rs.dryrun("w.py")
    with pytest.raises(InputError, match=r"the workload's file no\.py does not exist"):
        rs.dryrun("no.py:build", cache=folder / "cache")


LIBRARY_CALLS = """
import torch
from rocsolid.torchapi.inductor.lowering import record_lowering

record = record_lowering(lambda module: None)


def attention(x, a, b):
    q, k = x @ a, x @ b
    return torch.nn.functional.scaled_dot_product_attention(q, k, k)


with torch.no_grad():
    torch.compile(attention)(*[torch.randn(1, 2, 64, 64) for _ in range(3)])
for extern in record.graphs[0].externs:
    print(extern.name, *(location.rpartition(":")[2] for location in extern.locations))
"""


def test_a_library_call_has_its_own_line_and_not_those_of_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(LIBRARY_CALLS)
    ran = run_python(str(tmp_path / "calls.py"), env=clean_environ(TORCHINDUCTOR_FORCE_DISABLE_CACHES="1"))

    assert ran.code == 0, ran.err
    lines = [line.split()[1:] for line in ran.out.splitlines()]
    assert lines == [["9"], ["9"], ["10"]], ran.out


def assert_all_compiled(run: DryRun) -> None:
    for kernel in run.kernels:
        assert kernel.configs, kernel.name
        for config in kernel.configs:
            assert config.resources, (kernel.name, config.label, config.error)
            assert config.resources.fits
