"""Resource usage read from compiler output, library names, and the check of torch and Triton versions."""

from pathlib import Path

import pytest

from rocsolid.catalog.chips import CHIPS, chip, triton_for
from rocsolid.catalog.extern_kernels import library_of
from rocsolid.catalog.problems import all_problems
from rocsolid.dryrun import runner
from rocsolid.dryrun.resource_usage import (
    amd_resources,
    assembly_was_dropped,
    foreign_code,
    fp8_formats,
    nvidia_resources,
    widest_block,
)
from rocsolid.errors import CannotRunError
from rocsolid.model.platform import Platform

ASM = """
; codeLenInByte = 1456
; Occupancy: 8
  v_mfma_f32_32x32x8_bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]
amdhsa.kernels:
  - .agpr_count:     16
    .private_segment_fixed_size: 12
    .sgpr_count:     26
    .sgpr_spill_count: 1
    .vgpr_count:     44
    .vgpr_spill_count: 3
    .wavefront_size: 64
"""


@pytest.mark.parametrize(
    ("arch", "shared", "warps", "waves"),
    [
        ("gfx942", 0, 8, 8),
        ("gfx942", 32768, 8, 4),  # two workgroups of eight waves on four SIMDs
        ("gfx942", 40960, 4, 1),
        ("gfx950", 40960, 4, 4),  # 160 KiB fit four
        ("gfx942", 65537, 8, 8),  # cannot be launched: the limit by registers
    ],
)
def test_lds_limits_the_occupancy(arch: str, shared: int, warps: int, waves: int) -> None:
    used = amd_resources({"amdgcn": ASM, "ttgir": ""}, shared=shared, warps=warps, chip=chip(arch))

    assert used.occupancy == waves
    assert used.register_occupancy == 8


def test_reads_every_figure() -> None:
    used = amd_resources({"amdgcn": ASM, "ttgir": "tensor<2x64xf32, #b>"}, shared=8, warps=4, chip=chip("gfx942"))

    assert (used.registers, used.matrix_registers, used.scalar_registers) == (44, 16, 26)
    assert (used.spills, used.scalar_spills, used.scratch_bytes, used.code_bytes) == (3, 1, 12, 1456)
    assert (used.matrix_instructions, used.block, used.lanes_used) == (1, 128, 0.5)


def test_a_kernel_whose_inline_assembly_was_dropped_is_recognised() -> None:
    llir = '%22 = tail call float asm "ex2.approx.f32 $0, $1;", "=f,f"(float %17)'
    compiled = ";;#ASMSTART\n\tv_exp_f32 v1, v0\n;;#ASMEND"

    assert assembly_was_dropped({"llir": llir, "amdgcn": "\ts_endpgm"})
    assert not assembly_was_dropped({"llir": llir, "amdgcn": compiled})
    assert not assembly_was_dropped({"llir": "%2 = call float @llvm.exp2.f32(float %1)", "amdgcn": "\ts_endpgm"})


def test_reads_a_ptxas_report() -> None:
    report = "40 bytes stack frame, 64 bytes spill stores, 64 bytes spill loads\nUsed 128 registers, used 1 barriers"
    used = nvidia_resources({"ptx": "", "ttgir": ""}, report, shared=0, warps=4, chip=chip("sm_90"))

    assert (used.registers, used.spills, used.scratch_bytes, used.occupancy) == (128, 16, 40, 4)


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "waves"),
    [
        (33, 0, 4, 12),  # allocated as 40: 12 warps of each SIMD's 16384 registers
        (255, 0, 8, 2),
        (16, 0, 1, 8),  # at most 32 blocks
        (16, 32 * 1024, 4, 6),  # 33 KiB each with the reserved one: 6 blocks in 228 KiB
        (16, 114 * 1024, 4, 1),  # two would fit without the reserved memory
    ],
)
def test_occupancy_on_nvidia_is_what_cuda_allocates(registers: int, shared: int, warps: int, waves: int) -> None:
    report = f"Used {registers} registers"
    used = nvidia_resources({"ptx": "", "ttgir": ""}, report, shared=shared, warps=warps, chip=chip("sm_90"))

    assert used.occupancy == waves


def test_finds_the_widest_tensor() -> None:
    assert widest_block("%0 = tensor<64xi32> %1 = tensor<2x2048xf32, #blocked> tensor<!tt.ptr<f32>>") == 4096
    assert widest_block("no tensor") == 1


@pytest.mark.parametrize(
    ("source", "platform_arch", "foreign"),
    [
        ('tl.inline_asm_elementwise("cvt.rn.f16.f32 $0, $1;", "=h,f")', "gfx942", True),
        ('tl.inline_asm_elementwise(asm="""\n  v_exp_f32 $0, $1\n""", x=1)', "gfx942", False),
        ('tl.inline_asm_elementwise("v_exp_f32 $0, $1", "=v,v")', "sm_90", True),
        ('tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f")', "sm_90", False),
        ("from triton.language.extra.cuda import libdevice", "gfx942", True),
        ("from triton.language.extra import libdevice", "gfx942", False),
    ],
)
def test_finds_code_of_the_other_vendor(source: str, platform_arch: str, foreign: bool) -> None:  # noqa: FBT001 - a case
    assert bool(foreign_code(source, "", chip(platform_arch))) is foreign


def test_finds_fp8_formats_in_both_spellings() -> None:
    assert fp8_formats("*fp8e4nv") == fp8_formats("tensor<8xf8E4M3FN>") == ("float8_e4m3fn",)
    assert fp8_formats("*fp8e4b8", "f8E5M2FNUZ") == ("float8_e4m3fnuz", "float8_e5m2fnuz")


@pytest.mark.parametrize(
    ("call", "rocm", "cuda"),
    [
        ("addmm", "hipBLASLt or rocBLAS", "cuBLAS or cuBLASLt"),
        ("aten._scaled_mm.default", "hipBLASLt or rocBLAS", "cuBLAS or cuBLASLt"),
        ("bmm", "hipBLASLt or rocBLAS", "cuBLAS or cuBLASLt"),
        ("convolution", "MIOpen", "cuDNN"),
        ("aten._scaled_dot_product_flash_attention.default", "AOTriton", "flash attention in ATen"),
        ("aten.sort.stable", "ATen on hipCUB and rocPRIM", "ATen on CUB"),
        ("aten.index_put_.default", "ATen's own kernels", "ATen's own kernels"),
        ("aiter.mha_fwd.default", "operator of aiter", "operator of aiter"),
    ],
)
def test_names_the_library_of_a_call(call: str, rocm: str, cuda: str) -> None:
    assert library_of(call, Platform.ROCM).name == rocm
    assert library_of(call, Platform.CUDA).name == cuda


def test_library_warnings_refer_to_known_problems() -> None:
    known = {problem.id for problem in all_problems()}

    assert {library_of(call, Platform.ROCM).problem for call in ("addmm", "convolution")} <= known


def test_chips_are_consistent() -> None:
    assert len({c.arch for c in CHIPS}) == len(CHIPS)
    assert all(c.lds_bytes <= c.lds_bytes_per_unit and c.wavefront_size in (32, 64) for c in CHIPS)
    assert chip("gfx942").runtime_name == "gfx942:sramecc+:xnack-"
    assert (triton_for("2.13.0+cpu"), triton_for("2.99")) == ("3.7", None)


@pytest.mark.parametrize(
    ("torch", "triton", "message"),
    [
        ("", "3.7.1", "a dry run needs torch, which is not installed"),
        (
            "2.13.0",
            "",
            r"a dry run with torch 2\.13\.0 needs Triton, which is not installed: pip install 'triton==3\.7\.\*'",
        ),
        ("2.13.0", "3.9.0", r"torch 2\.13\.0 needs Triton 3\.7, but Triton 3\.9\.0 is installed: pip install"),
    ],
)
def test_mismatched_versions_name_the_matching_one(
    monkeypatch: pytest.MonkeyPatch, torch: str, triton: str, message: str
) -> None:
    monkeypatch.setattr(runner, "_version", lambda package, _: {"torch": torch, "triton": triton}[package])

    with pytest.raises(CannotRunError, match=message):
        runner.version_note()


def test_a_workload_needs_a_torch_that_compiles_fake_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_version", lambda package, _: {"torch": "2.10.0+cpu", "triton": "3.6.0"}[package])
    with pytest.raises(CannotRunError, match=r"a workload needs torch 2\.11 or later, and torch 2\.10\.0\+cpu is"):
        runner.version_note(compiles=True)
    assert not runner.version_note()


def test_untested_versions_get_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_version", lambda package, _: {"torch": "2.15.0", "triton": "3.9.0"}[package])
    assert not runner.version_note()
    monkeypatch.setattr(runner, "_version", lambda package, _: {"torch": "2.99.0", "triton": "9.0.0"}[package])
    assert "is untested (tested: torch 2.9 with Triton 3.5" in runner.version_note()


def test_a_missing_compiler_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from rocsolid.torchapi.pretend import device

    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "version.py").write_text("")
    (torch / "__init__.py").write_text("")
    monkeypatch.setattr(device, "find_spec", lambda _: type("Spec", (), {"origin": str(torch / "__init__.py")}))
    monkeypatch.setattr("shutil.which", lambda _: None)

    with pytest.raises(CannotRunError, match=r"needs a C\+\+ compiler.*Install g\+\+"):
        device.build_stub_library(tmp_path)
