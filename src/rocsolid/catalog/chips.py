"""The chips that `rocsolid dryrun` and `rs.pretend` know, and the Triton release that belongs to each torch release."""

from typing import Final

from rocsolid.errors import UnknownNameError, UsageError
from rocsolid.model.chip import Chip
from rocsolid.model.platform import Platform
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.model.release import parts

_FP8_OCP: Final = ("float8_e4m3fn", "float8_e5m2")
_FP8_FNUZ: Final = ("float8_e4m3fnuz", "float8_e5m2fnuz")

CHIPS: Final = (
    Chip(
        arch="gfx90a",
        product="AMD Instinct MI210",
        platform=Platform.ROCM,
        capability=(9, 0),
        wavefront_size=64,
        compute_units=104,
        lds_bytes=65536,
        lds_bytes_per_unit=65536,
        simds=4,
        waves_per_simd=8,
        registers_per_unit=65536,
        memory_gib=64,
    ),
    Chip(
        arch="gfx942",
        product="AMD Instinct MI300X",
        platform=Platform.ROCM,
        capability=(9, 4),
        wavefront_size=64,
        compute_units=304,
        lds_bytes=65536,
        lds_bytes_per_unit=65536,
        simds=4,
        waves_per_simd=8,
        registers_per_unit=131072,
        memory_gib=192,
        fp8=_FP8_FNUZ,
    ),
    Chip(
        arch="gfx950",
        product="AMD Instinct MI355X",
        platform=Platform.ROCM,
        capability=(9, 5),
        wavefront_size=64,
        compute_units=256,
        lds_bytes=163840,
        lds_bytes_per_unit=163840,
        simds=4,
        waves_per_simd=8,
        registers_per_unit=131072,
        memory_gib=288,
        fp8=_FP8_OCP,
    ),
    Chip(
        arch="gfx1100",
        product="AMD Radeon RX 7900 XTX",
        platform=Platform.ROCM,
        capability=(11, 0),
        wavefront_size=32,
        compute_units=48,
        lds_bytes=65536,
        lds_bytes_per_unit=131072,
        simds=4,
        waves_per_simd=16,
        registers_per_unit=131072,
        memory_gib=24,
    ),
    Chip(
        arch="gfx1201",
        product="AMD Radeon RX 9070 XT",
        platform=Platform.ROCM,
        capability=(12, 0),
        wavefront_size=32,
        compute_units=32,
        lds_bytes=65536,
        lds_bytes_per_unit=131072,
        simds=4,
        waves_per_simd=16,
        registers_per_unit=131072,
        memory_gib=16,
        fp8=_FP8_OCP,
    ),
    Chip(
        arch="sm_90",
        product="NVIDIA H100",
        platform=Platform.CUDA,
        capability=(9, 0),
        wavefront_size=32,
        compute_units=132,
        lds_bytes=232448,
        lds_bytes_per_unit=233472,
        simds=4,
        waves_per_simd=16,
        registers_per_unit=65536,
        memory_gib=80,
        fp8=_FP8_OCP,
    ),
)

# The ROCm or CUDA release of a pretended chip when none is given.
DEFAULT_RELEASE: Final = {Platform.ROCM: "7.2.4", Platform.CUDA: "13.0"}

# The Triton that each torch was released with. Inductor works only with that Triton.
TRITON_RELEASES: Final = {
    "2.9": "3.5",
    "2.10": "3.6",
    "2.11": "3.6",
    "2.12": "3.7",
    "2.13": "3.7",
    "2.14": "3.8",
    "2.15": "3.9",
}


def chip(arch: str) -> Chip:
    """The chip of that name; raises UnknownNameError."""
    found = next((c for c in CHIPS if c.arch == arch), None)
    if found is None:
        raise UnknownNameError(kind="target", name=arch, known=[c.arch for c in CHIPS])
    return found


def parse_pretended_chip(text: str) -> PretendedChip:
    """Parse `gfx942` or `gfx942@7.2.1`: a chip, and optionally a ROCm or CUDA release."""
    arch, _, release = text.partition("@")
    found = chip(arch)
    if release and len(parts(release)) < 2:  # noqa: PLR2004 - a release has at least two numbers
        msg = f"{text!r}: {release!r} is not a release; write one such as {arch}@{DEFAULT_RELEASE[found.platform]}"
        raise UsageError(msg)
    return PretendedChip(chip=found, release=release or DEFAULT_RELEASE[found.platform])


def triton_for(torch: str) -> str | None:
    """The Triton release, such as 3.7, for a torch release; None when it is not in the table."""
    return TRITON_RELEASES.get(".".join(str(number) for number in parts(torch)[:2]))
