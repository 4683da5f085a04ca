"""A pretended chip: a simulated GPU, and the versions that torch reports for it."""

from dataclasses import dataclass
from typing import Final

from rocsolid.model.chip import Chip
from rocsolid.model.platform import Platform
from rocsolid.model.release import parts

# torch.version.hip by ROCm release, from real traces. For other releases the last part is not known, and 0 is used.
_HIP_VERSIONS: Final = {"6.4": "6.4.43483", "7.0": "7.0.51831", "7.2": "7.2.53211"}


@dataclass(frozen=True, kw_only=True)
class PretendedChip:
    """A chip and a release of ROCm or CUDA."""

    chip: Chip
    release: str

    @property
    def hip(self) -> str:
        """The value of `torch.version.hip`; empty for an NVIDIA chip."""
        major_minor = ".".join(map(str, parts(self.release)[:2]))
        return _HIP_VERSIONS.get(major_minor, f"{major_minor}.0") if self.chip.platform is Platform.ROCM else ""

    @property
    def cuda(self) -> str:
        """The value of `torch.version.cuda`; empty for an AMD chip."""
        return self.release if self.chip.platform is Platform.CUDA else ""

    @property
    def rocm(self) -> str:
        """The ROCm release; empty for an NVIDIA chip."""
        return self.release if self.chip.platform is Platform.ROCM else ""

    @property
    def label(self) -> str:
        """The text in messages: product, arch and release."""
        return f"{self.chip.product} ({self.chip.arch}) with {self.chip.platform.label} {self.release}"

    def __str__(self) -> str:
        return f"{self.chip.arch}@{self.release}"
