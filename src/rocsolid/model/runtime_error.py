"""An error code of the HIP and CUDA runtimes."""

import re
from dataclasses import dataclass

from rocsolid.model.capture_rule import Runtime


@dataclass(frozen=True, kw_only=True)
class RuntimeErrorCode:
    """One error number. HIP and CUDA share most numbers and texts, but some names differ, and so do the causes of some errors."""

    number: int
    hip: str  # empty where HIP has no such error
    cuda: str
    text: str  # the runtime's own text; CUDA's where HIP's differs
    hip_text: str = ""  # HIP's text where it differs
    difference: str = ""  # how HIP and CUDA behave differently, in full sentences

    def name(self, runtime: Runtime) -> str:
        """The error's name in this runtime."""
        return self.hip if runtime.is_hip else self.cuda

    @property
    def names(self) -> tuple[str, ...]:
        """The names in HIP and CUDA, HIP's first."""
        return tuple(name for name in (self.hip, self.cuda) if name)

    @property
    def driver_name(self) -> str:
        """The error's name in the CUDA driver, which libraries that call the driver directly report."""
        words = re.findall("[A-Z][a-z]+", self.cuda.removeprefix("cudaError"))
        return f"CUDA_ERROR_{'_'.join(words).upper()}"

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of CUDA and HIP, each once."""
        return tuple(text for text in (self.text, self.hip_text) if text)
