"""Families of environment variables, who reads which, and names that people write and nobody reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from rocsolid.catalog.registry import find
from rocsolid.errors import near_matches

_TABLE = Path(__file__).with_name("variables.json")


@dataclass(frozen=True, kw_only=True)
class Family:
    """Variables of one maker, told by their names."""

    name: str
    prefixes: tuple[str, ...]
    contains: tuple[str, ...] = ()
    complete: bool = False  # our list of names is whole, so that a name outside it is worth a remark

    def holds(self, variable: str) -> bool:
        """Whether a variable belongs here."""
        return variable.startswith(self.prefixes) or any(part in variable for part in self.contains)


FAMILIES: Final = (
    Family(name="torch", prefixes=("TORCH", "PYTORCH", "INDUCTOR"), contains=("INDUCTOR", "AUTOTUNE", "TORCH_COMPILE"), complete=True),
    Family(name="triton", prefixes=("TRITON", "AMDGCN_", "MLIR_", "LLVM_IR"), complete=True),
    Family(name="hip", prefixes=("HIP_", "AMD_", "GPU_", "DEBUG_HIP_", "DEBUG_CLR_", "ROC_"), complete=True),
    Family(name="hsa", prefixes=("HSA_", "HSAKMT_", "ROCR_"), complete=True),
    Family(name="miopen", prefixes=("MIOPEN_",)),
    Family(name="blas", prefixes=("ROCBLAS_", "HIPBLAS", "TENSILE_", "CUBLAS")),
    Family(name="collectives", prefixes=("NCCL_", "RCCL_")),
    Family(name="threads", prefixes=("OMP_", "MKL_", "KMP_", "GOMP_")),
    Family(name="cuda", prefixes=("CUDA_", "CUDNN_")),
    Family(name="aiter", prefixes=("AITER_", "FLASH_ATTENTION_")),
)  # fmt: skip

# What guides and habits spell wrongly. A resemblance of letters would not find these.
MISNOMERS: Final[Mapping[str, str]] = {
    "INDUCTOR_COORD_DESCENT": "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "COORD_DESCENT": "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "INDUCTOR_BENCHMARK_KERNEL": "TORCHINDUCTOR_BENCHMARK_KERNEL",
    "INDUCTOR_FREEZING": "TORCHINDUCTOR_FREEZING",
    "INDUCTOR_GROUP_FUSION": "",  # the setting itself is dead
    "INDUCTOR_AGGRESSIVE_FUSION": "",  # has no variable: set it in Python
    "INDUCTOR_MAX_FUSION_SIZE": "",
    "MAX_FUSION_SIZE": "",
    "TORCH_INDUCTOR_MAX_AUTOTUNE": "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TUNABLEOP_ENABLED": "PYTORCH_TUNABLEOP_ENABLED",
    "TORCH_TUNABLEOP_ENABLED": "PYTORCH_TUNABLEOP_ENABLED",
    "TORCHINDUCTOR_CUDA_GRAPHS": "TORCHINDUCTOR_CUDAGRAPHS",
    "TORCH_COMPILE_CACHE_DIR": "TORCHINDUCTOR_CACHE_DIR",
}


def family(variable: str) -> Family | None:
    """The family a variable belongs to, if we audit it."""
    return next((f for f in FAMILIES if f.holds(variable)), None)


def in_family(variable: str) -> bool:
    """Whether we audit this variable."""
    return variable in MISNOMERS or family(variable) is not None or find(variable) is not None


def is_read(variable: str) -> bool:
    """Whether any library we know asks for this name."""
    return variable in _names() or find(variable) is not None


def meant(variable: str) -> tuple[str, ...]:
    """The names somebody who wrote `variable` may have meant, best first."""
    if variable in MISNOMERS:
        return (MISNOMERS[variable],) if MISNOMERS[variable] else ()
    own = family(variable)
    known = [name for name in _names() if own is None or own.holds(name)]
    return tuple(name for name in near_matches(variable, known) if _close(variable, name))


def _close(wrong: str, right: str) -> bool:
    """A slip of the pen, not another word: the same letters but for a few."""
    from difflib import SequenceMatcher

    return SequenceMatcher(None, wrong, right).ratio() > 0.9  # noqa: PLR2004 - two or three letters in twenty


@cache
def _names() -> frozenset[str]:
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    return frozenset(name for reader in table.values() for name in reader["names"])
