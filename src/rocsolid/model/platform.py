"""What torch runs on."""

from enum import Enum


class Platform(Enum):
    """What torch was built for; without torch, what the machine holds."""

    ROCM = "rocm"
    CUDA = "cuda"
    CPU = "cpu"

    @property
    def label(self) -> str:
        """As people write it."""
        return {"rocm": "ROCm", "cuda": "CUDA", "cpu": "CPU"}[self.value]
