"""The environment variables that matter to torch: families, the names that libraries read, common wrong names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from rocsolid.catalog.registry import find
from rocsolid.errors import near_matches

_TABLE = Path(__file__).with_name("variables.json")
_TYPO_SIMILARITY: Final = 0.9  # two or three different letters in a name of twenty


@dataclass(frozen=True, kw_only=True)
class Family:
    """The environment variables of one project, recognised by their names."""

    name: str
    prefixes: tuple[str, ...]
    contains: tuple[str, ...] = ()
    complete: bool = False  # variables.json lists all names of the family, so that any other name is a finding

    def matches(self, variable: str) -> bool:
        """Whether a variable belongs to this family."""
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

# Wrong names that guides use, and the right names. They are too different to be found by similarity. An empty name
# means that no variable has this effect.
WRONG_NAMES: Final[Mapping[str, str]] = {
    "INDUCTOR_COORD_DESCENT": "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "COORD_DESCENT": "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "INDUCTOR_BENCHMARK_KERNEL": "TORCHINDUCTOR_BENCHMARK_KERNEL",
    "INDUCTOR_FREEZING": "TORCHINDUCTOR_FREEZING",
    "INDUCTOR_GROUP_FUSION": "",
    "INDUCTOR_AGGRESSIVE_FUSION": "",  # the setting has no variable and must be set in Python
    "INDUCTOR_MAX_FUSION_SIZE": "",
    "MAX_FUSION_SIZE": "",
    "TORCH_INDUCTOR_MAX_AUTOTUNE": "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TUNABLEOP_ENABLED": "PYTORCH_TUNABLEOP_ENABLED",
    "TORCH_TUNABLEOP_ENABLED": "PYTORCH_TUNABLEOP_ENABLED",
    "TORCHINDUCTOR_CUDA_GRAPHS": "TORCHINDUCTOR_CUDAGRAPHS",
    "TORCH_COMPILE_CACHE_DIR": "TORCHINDUCTOR_CACHE_DIR",
}

# Wrong names whose setting exists in torch but has no effect either.
WITHOUT_EFFECT: Final = frozenset({"INDUCTOR_GROUP_FUSION"})


def family(variable: str) -> Family | None:
    """The family that a variable belongs to; None for variables that do not concern torch."""
    return next((f for f in FAMILIES if f.matches(variable)), None)


def is_relevant(variable: str) -> bool:
    """Whether the probe reports this variable."""
    return variable in WRONG_NAMES or family(variable) is not None or find(variable) is not None


def is_read(variable: str) -> bool:
    """Whether any library in the catalogue reads this variable."""
    return variable in _known_names() or find(variable) is not None


def similar_variables(variable: str) -> tuple[str, ...]:
    """The variables that a user may have meant by a wrong name, most similar first."""
    if variable in WRONG_NAMES:
        return (WRONG_NAMES[variable],) if WRONG_NAMES[variable] else ()
    same_family = family(variable)
    known = [name for name in _known_names() if same_family is None or same_family.matches(name)]
    return tuple(name for name in near_matches(variable, known) if _is_typo(variable, name))


def _is_typo(wrong: str, right: str) -> bool:
    """Whether two names differ by a few letters only."""
    from difflib import SequenceMatcher

    return SequenceMatcher(None, wrong, right).ratio() > _TYPO_SIMILARITY


@cache
def _known_names() -> frozenset[str]:
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    return frozenset(name for reader in table.values() for name in reader["names"])
