"""An error code of the HIP and CUDA runtimes."""

import re
from dataclasses import dataclass

from rocsolid.model.capture_rule import Runtime


@dataclass(frozen=True, kw_only=True)
class RuntimeErrorCode:
    """One error number. HIP and CUDA share most numbers and texts, but not all names and not when they report them."""

    number: int
    hip: str  # empty where HIP has no such error
    cuda: str
    text: str  # the text of both; CUDA's where they differ
    hip_text: str = ""  # only where it differs
    differs: str = ""  # where the two runtimes behave differently

    def name(self, runtime: Runtime) -> str:
        """The error's name in this runtime."""
        return self.hip if runtime.is_hip else self.cuda

    @property
    def names(self) -> tuple[str, ...]:
        """Both names, HIP's first."""
        return tuple(name for name in (self.hip, self.cuda) if name)

    @property
    def driver(self) -> str:
        """The CUDA driver's name, which libraries below the runtime report."""
        words = re.findall("[A-Z][a-z]+", self.cuda.removeprefix("cudaError"))
        return f"CUDA_ERROR_{'_'.join(words).upper()}"

    @property
    def texts(self) -> tuple[str, ...]:
        """Both texts."""
        return tuple(text for text in (self.text, self.hip_text) if text)
