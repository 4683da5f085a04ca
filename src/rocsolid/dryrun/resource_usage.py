"""Reads the resource usage of a compiled kernel from the compiler's output."""

import re
from collections.abc import Mapping
from typing import Final

from rocsolid.model.chip import Chip
from rocsolid.model.dryrun import Resources
from rocsolid.model.platform import Platform

_AMD_MATRIX: Final = re.compile(r"^\s*v_(?:mfma|smfmac|wmma|swmmac)_", re.MULTILINE)
_NVIDIA_MATRIX: Final = re.compile(r"^\s*(?:@\S+\s+)?(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma)", re.MULTILINE)
_TENSOR: Final = re.compile(r"tensor<((?:\d+x)+)")
_VENDOR_ASSEMBLY: Final = {
    Platform.ROCM: re.compile(r"\b(?:v|s|ds|buffer|global|flat|scratch)_[a-z]"),
    Platform.CUDA: re.compile(r"\b[a-z]+\d*\.[a-z]|%[a-z]"),
}
_ASM_CALL: Final = re.compile(
    r"inline_asm_elementwise\(\s*(?:asm\s*=\s*)?(\"\"\".*?\"\"\"|'''.*?'''|\"[^\"\n]*\"|'[^'\n]*')", re.DOTALL
)
_LLVM_ASM: Final = re.compile(r"\bcall\b[^\n]*\basm\b")
_NV_LIBRARY: Final = re.compile(r"\b__nv_\w+|\bextra\.cuda\b(?:\.\w+)*|\bcuda\.libdevice\b")
_AMD_LIBRARY: Final = re.compile(r"\b__oc(?:ml|kl)_\w+|\bextra\.hip\b(?:\.\w+)*|\bhip\.libdevice\b")
_REGISTER_BYTES: Final = 4
# How CUDA allocates registers to a warp and shared memory to a block on compute capability 9.0 (CUDA occupancy calculator).
_CUDA_REGISTER_UNIT: Final = 256
_CUDA_SHARED_UNIT: Final = 128
_CUDA_SHARED_RESERVED: Final = 1024
_CUDA_MAX_GROUPS: Final = 32
_FP8: Final = {
    "float8_e4m3fn": re.compile(r"\bfp8e4nv\b|f8E4M3FN\b"),
    "float8_e5m2": re.compile(r"\bfp8e5\b|f8E5M2\b"),
    "float8_e4m3fnuz": re.compile(r"\bfp8e4b8\b|f8E4M3FNUZ\b"),
    "float8_e5m2fnuz": re.compile(r"\bfp8e5b16\b|f8E5M2FNUZ\b"),
}


def assembly_was_dropped(asm: Mapping[str, str | bytes]) -> bool:
    """Return whether LLVM replaced a kernel with inline assembly by an empty one: it does so without an error since Triton 3.9."""
    return bool(_LLVM_ASM.search(str(asm.get("llir", "")))) and "ASMSTART" not in str(asm["amdgcn"])


def amd_resources(asm: Mapping[str, str | bytes], *, shared: int, warps: int, chip: Chip) -> Resources:
    """Read the resources from the metadata and comments of the assembly; LDS from Triton, because the assembly does not contain it."""
    text = str(asm["amdgcn"])
    register_occupancy = _comment(text, "Occupancy") or 1
    occupancy = _limit_by_lds(register_occupancy, shared, warps, chip)
    wavefront = _metadata(text, ".wavefront_size") or chip.wavefront_size
    block = widest_block(str(asm.get("ttgir") or asm.get("ttir") or ""))
    return Resources(
        registers=_metadata(text, ".vgpr_count"),
        matrix_registers=_metadata(text, ".agpr_count"),
        scalar_registers=_metadata(text, ".sgpr_count"),
        spills=_metadata(text, ".vgpr_spill_count"),
        scalar_spills=_metadata(text, ".sgpr_spill_count"),
        scratch_bytes=_metadata(text, ".private_segment_fixed_size"),
        lds_bytes=shared,
        lds_limit_bytes=chip.lds_bytes,
        wavefront=wavefront,
        register_occupancy=register_occupancy,
        occupancy=occupancy,
        block=block,
        lanes_used=min(1.0, block / (warps * wavefront)),
        matrix_instructions=len(_AMD_MATRIX.findall(text)),
        code_bytes=_comment(text, "codeLenInByte"),
    )


def nvidia_resources(asm: Mapping[str, str | bytes], report: str, *, shared: int, warps: int, chip: Chip) -> Resources:
    """Read the resources from the report of `ptxas -v`; spills are counted in registers of four bytes, as on AMD."""
    registers = _number(r"Used (\d+) registers", report)
    spilled_bytes = _number(r"(\d+) bytes spill stores", report)
    threads = warps * chip.wavefront_size
    used = _round_up(registers * chip.wavefront_size, _CUDA_REGISTER_UNIT)  # by one warp
    by_registers = chip.registers_per_unit // chip.simds // used if used else chip.waves_per_simd
    groups = min(_CUDA_MAX_GROUPS, min(chip.waves_per_simd, by_registers) * chip.simds // warps)
    occupancy = max(1, groups * warps // chip.simds)
    block = widest_block(str(asm.get("ttgir") or asm.get("ttir") or ""))
    return Resources(
        registers=registers,
        spills=spilled_bytes // _REGISTER_BYTES,
        scratch_bytes=_number(r"(\d+) bytes stack frame", report),
        lds_bytes=shared,
        lds_limit_bytes=chip.lds_bytes,
        wavefront=chip.wavefront_size,
        register_occupancy=occupancy,
        occupancy=_limit_by_lds(occupancy, _round_up(shared, _CUDA_SHARED_UNIT) + _CUDA_SHARED_RESERVED, warps, chip),
        block=block,
        lanes_used=min(1.0, block / threads),
        matrix_instructions=len(_NVIDIA_MATRIX.findall(str(asm.get("ptx", "")))),
        code_bytes=len(asm.get("cubin", b"")),
    )


def widest_block(text: str) -> int:
    """Elements of the widest tensor in the intermediate code; 1 if there is none."""
    widest = 1
    for shape in _TENSOR.findall(text):
        elements = 1
        for size in shape.rstrip("x").split("x"):
            elements *= int(size)
        widest = max(widest, elements)
    return widest


def foreign_code(source: str, error: str, chip: Chip) -> tuple[str, ...]:
    """Code of the other vendor in a kernel: inline assembly, or functions of its device library."""
    assembly = [literal for literal in _ASM_CALL.findall(source) if not _VENDOR_ASSEMBLY[chip.platform].search(literal)]
    found = [f"inline assembly {' '.join(literal.split())[:80]}" for literal in assembly]
    library = _NV_LIBRARY if chip.platform is Platform.ROCM else _AMD_LIBRARY
    names = library.findall(f"{source}\n{error}")
    found += [f"device library {n}" for n in names if not any(other.startswith(f"{n}.") for other in names)]
    return tuple(dict.fromkeys(found))


def fp8_formats(*texts: str) -> tuple[str, ...]:
    """FP8 formats in a kernel's source or intermediate code."""
    return tuple(name for name, pattern in _FP8.items() if any(pattern.search(text) for text in texts))


def _limit_by_lds(waves: int, shared: int, warps: int, chip: Chip) -> int:
    """Return the occupancy limited by LDS too. The compiler ignores the LDS that Triton requests at launch."""
    if not shared or shared > chip.lds_bytes:
        return waves
    return max(1, min(waves, chip.lds_bytes_per_unit // shared * warps // chip.simds))


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _metadata(text: str, key: str) -> int:
    return _number(rf"^\s*-?\s*{re.escape(key)}:\s*(\d+)", text)


def _comment(text: str, key: str) -> int:
    return _number(rf";\s*{key}\s*[:=]\s*(\d+)", text)


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text, re.MULTILINE)
    return int(match[1]) if match else 0
