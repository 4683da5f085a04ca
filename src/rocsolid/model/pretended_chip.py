"""A chip that is not here, for development: what a process that pretends to have it says of itself."""

from dataclasses import dataclass
from typing import Final

from rocsolid.model.chip import Chip
from rocsolid.model.platform import Platform
from rocsolid.model.release import parts

# What torch.version.hip says beside a release of ROCm, as real traces show it; of others the last number is not known to us.
_BUILDS: Final = {"6.4": "6.4.43483", "7.0": "7.0.51831", "7.2": "7.2.53211"}


@dataclass(frozen=True, kw_only=True)
class Pretence:
    """A chip, and the release of ROCm or CUDA that would be there with it."""

    chip: Chip
    release: str

    @property
    def hip(self) -> str:
        """What `torch.version.hip` says; empty for another vendor's chip."""
        short = ".".join(map(str, parts(self.release)[:2]))
        return _BUILDS.get(short, f"{short}.0") if self.chip.platform is Platform.ROCM else ""

    @property
    def cuda(self) -> str:
        """What `torch.version.cuda` says."""
        return self.release if self.chip.platform is Platform.CUDA else ""

    @property
    def rocm(self) -> str:
        """The release of ROCm, where it is one."""
        return self.release if self.chip.platform is Platform.ROCM else ""

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.chip.product} ({self.chip.arch}) with {self.chip.platform.label} {self.release}"

    def __str__(self) -> str:
        return f"{self.chip.arch}@{self.release}"
