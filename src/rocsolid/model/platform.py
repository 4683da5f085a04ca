"""The platform that torch runs on: ROCm, CUDA or CPU."""

from enum import Enum


class Platform(Enum):
    """What torch was built for; without torch, what the machine has."""

    ROCM = "rocm"
    CUDA = "cuda"
    CPU = "cpu"

    @property
    def label(self) -> str:
        """The usual spelling."""
        return {"rocm": "ROCm", "cuda": "CUDA", "cpu": "CPU"}[self.value]
