"""Makes torch report a build for a chip that is not present: its versions and the device properties.

Two features use it. `rs.pretend` changes only `torch.version` and the device properties: tensors stay on the CPU, and
`torch.cuda.is_available()` stays False. A dry run, in its own process, also makes torch trace tensors on the simulated GPU
(`pretend_device`). Importing this module changes nothing; `FakeDeviceInfo.keep` does.
"""

import builtins
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from rocsolid.errors import UsageError
from rocsolid.model.chip import Chip
from rocsolid.model.platform import Platform
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.torchapi.import_hooks import when_imported
from rocsolid.torchapi.private_api import AttributePatch

# These modules read the vendor (AMD or NVIDIA) once, at import.
_READ_VENDOR_AT_IMPORT: Final = ("torch._inductor.config", "torch._inductor.runtime.hints")
_DEFAULT_SHARED_BYTES: Final = 48 << 10  # shared memory per block on NVIDIA chips, unless a kernel requests more
_active: "list[FakeDeviceInfo]" = []


def build_versions(pretended: PretendedChip) -> dict[str, str | None]:
    """Return the values of `torch.version` of a build for that chip."""
    return {"hip": pretended.hip or None, "cuda": pretended.cuda or None, "rocm": pretended.rocm or None}


@dataclass(frozen=True, eq=False)
class _CUuuid:
    """The identifier of a device, as torch's class of this name."""

    bytes: list[int]

    def __str__(self) -> str:
        return str(uuid.UUID(bytes=builtins.bytes(self.bytes)))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class _CudaDeviceProperties:
    """All attributes of torch's class of this name, in torch 2.9 to 2.15. Like that class, it is hashable and read-only."""

    name: str
    major: int
    minor: int
    is_multi_gpu_board: int = 0
    is_integrated: int = 0
    multi_processor_count: int
    total_memory: int
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    warp_size: int
    clock_rate: int = 2_100_000
    memory_clock_rate: int = 1_300_000
    memory_bus_width: int = 8192
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    regs_per_multiprocessor: int
    gcnArchName: str  # noqa: N815 - torch's name
    uuid: _CUuuid = _CUuuid([0] * 16)
    pci_bus_id: int = 1
    pci_device_id: int = 0
    pci_domain_id: int = 0
    L2_cache_size: int = 4 << 20

    def __repr__(self) -> str:
        arch = f", gcnArchName='{self.gcnArchName}'" if self.gcnArchName != self.name else ""
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}{arch}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


def device_properties(chip: Chip) -> _CudaDeviceProperties:
    """Return what `torch.cuda.get_device_properties` returns for that chip."""
    is_amd = chip.platform is Platform.ROCM
    return _CudaDeviceProperties(
        name=chip.product,
        major=chip.capability[0],
        minor=chip.capability[1],
        gcnArchName=chip.runtime_name if is_amd else chip.product,  # a build for CUDA repeats the name here
        total_memory=chip.memory_gib << 30,
        multi_processor_count=chip.compute_units,
        regs_per_multiprocessor=chip.registers_per_unit,
        warp_size=chip.wavefront_size,
        shared_memory_per_block=chip.lds_bytes if is_amd else _DEFAULT_SHARED_BYTES,
        shared_memory_per_block_optin=chip.lds_bytes,
        shared_memory_per_multiprocessor=chip.lds_bytes_per_unit,
    )


def active_pretended_chip() -> PretendedChip | None:
    """Return the chip of the active `rs.pretend`; None if there is none."""
    return _active[-1].pretended if _active else None


class FakeDeviceInfo:
    """Patches `torch.version` and the device properties between `keep()` and `undo()`, as soon as torch is imported."""

    def __init__(self, pretended: PretendedChip) -> None:
        self.pretended = pretended
        # These modules have read the vendor of the real build, and keep it.
        self.imported_before = tuple(name for name in _READ_VENDOR_AT_IMPORT if name in sys.modules)
        self._undo: list[Callable[[], None]] = []

    def keep(self) -> "FakeDeviceInfo":
        """Patch torch until `undo` or until the process ends."""
        if _active:
            msg = (
                f"rs.pretend() is already active in this process ({_active[-1].pretended.label}); leave its block first"
            )
            raise UsageError(msg)
        _active.append(self)
        self._undo.append(lambda: _active.remove(self))
        self._undo.append(when_imported("torch", self._patch_torch))
        return self

    def undo(self) -> None:
        """Restore torch."""
        undos, self._undo = self._undo, []
        for undo in reversed(undos):
            undo()

    def _patch_torch(self, torch: ModuleType) -> None:
        chip = self.pretended.chip
        properties = device_properties(chip)
        functions: dict[str, Callable[..., Any]] = {
            "get_device_properties": lambda *_, **__: properties,
            "get_device_capability": lambda *_, **__: chip.capability,
            "get_device_name": lambda *_, **__: chip.product,
        }
        patches = [
            AttributePatch(torch.version, name, _constant(text))
            for name, text in build_versions(self.pretended).items()
            if hasattr(torch.version, name)
        ]
        patches += [AttributePatch(torch.cuda, name, _constant(function)) for name, function in functions.items()]
        self._undo += [patch.undo for patch in patches]


def _constant(value: object) -> Callable[[object], object]:
    return lambda _: value
