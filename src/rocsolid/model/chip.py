"""The properties of a GPU chip that a compiler and a kernel launch depend on."""

from dataclasses import dataclass

from rocsolid.model.platform import Platform


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One GPU chip: its name, and the limits that decide whether a kernel runs and at what occupancy."""

    arch: str  # gfx942, sm_90
    product: str
    platform: Platform
    capability: tuple[int, int]  # as torch.cuda.get_device_capability returns it
    wavefront_size: int  # threads of one wavefront (AMD) or warp (NVIDIA)
    compute_units: (
        int  # as torch counts them: compute units (CDNA), workgroup processors of two units (RDNA), or SMs (NVIDIA)
    )
    lds_bytes: int  # the most LDS (shared memory) that one workgroup can use
    lds_bytes_per_unit: int  # LDS that the workgroups on one compute unit share
    simds: int  # SIMDs in one compute unit
    waves_per_simd: int  # the most wavefronts that one SIMD holds
    registers_per_unit: int  # registers of one compute unit, as the runtime reports them
    memory_gib: int
    fp8: tuple[str, ...] = ()  # the float8 dtypes that the matrix units support

    @property
    def runtime_name(self) -> str:
        """The name as the HIP runtime spells it. It adds feature flags to the names of data-centre chips."""
        return f"{self.arch}:sramecc+:xnack-" if self.arch.startswith("gfx9") else self.arch
