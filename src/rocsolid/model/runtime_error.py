"""An error code of the HIP and CUDA runtimes."""

import re
from dataclasses import dataclass

from rocsolid.model.capture_rule import Runtime


@dataclass(frozen=True, kw_only=True)
class RuntimeErrorCode:
    """One number; the two runtimes share most numbers and texts, and differ in some names and habits."""

    number: int
    hip: str  # empty where HIP has no such error
    cuda: str
    text: str  # as both word it; CUDA's where they differ
    hip_text: str = ""  # only where it differs
    differs: str = ""  # what one runtime does and the other does not

    def name(self, runtime: Runtime) -> str:
        """As this runtime names it."""
        return self.hip if runtime.is_hip else self.cuda

    @property
    def names(self) -> tuple[str, ...]:
        """Both names, HIP's first."""
        return tuple(name for name in (self.hip, self.cuda) if name)

    @property
    def driver(self) -> str:
        """As the CUDA driver names it, which libraries below the runtime pass on."""
        words = re.findall("[A-Z][a-z]+", self.cuda.removeprefix("cudaError"))
        return f"CUDA_ERROR_{'_'.join(words).upper()}"

    @property
    def texts(self) -> tuple[str, ...]:
        """Every wording."""
        return tuple(text for text in (self.text, self.hip_text) if text)
