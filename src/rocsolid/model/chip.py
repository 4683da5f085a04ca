"""What a compiler and a launch must know of a chip."""

from dataclasses import dataclass

from rocsolid.model.platform import Platform


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One accelerator: its name, and the limits that decide whether a kernel runs and how well."""

    arch: str  # gfx942, sm_90
    product: str
    platform: Platform
    capability: tuple[int, int]
    wavefront: int  # lanes that run in step
    units: int  # compute units, or streaming multiprocessors
    lds_bytes: int  # most local memory that one workgroup may ask for
    unit_lds_bytes: int  # local memory that workgroups share, with the SIMDs below
    simds: int  # that share it
    waves: int  # most of them that one SIMD holds
    registers: int  # per compute unit, as the runtime reports them
    memory_gib: int
    fp8: tuple[str, ...] = ()  # number formats that the matrix unit knows

    @property
    def runtime_name(self) -> str:
        """As the runtime spells it, with the features of data-centre parts."""
        return f"{self.arch}:sramecc+:xnack-" if self.arch.startswith("gfx9") else self.arch
