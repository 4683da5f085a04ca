"""Facts about settings and platforms that only the tuner uses. The values to try are declared by each setting itself."""

from collections.abc import Mapping
from typing import Final

from rocsolid.catalog import tunableop
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Value

# These have no effect on a workload, because its shapes are fixed. They are tried only if the user names them.
ONLY_FOR_CHANGING_SHAPES: Final = ("dynamo.recompile_limit", "dynamo.automatic_dynamic_shapes", "compile.dynamic")

_AUTOTUNE: Final[tuple[tuple[str, Value], ...]] = (
    ("inductor.max_autotune", True),
    ("inductor.max_autotune_gemm", True),
    ("compile.mode", "max-autotune"),
    ("compile.mode", "max-autotune-no-cudagraphs"),
)
# Each setting in this table has an effect only if at least one of the listed settings has the listed value.
REQUIRES_ANY: Final[Mapping[str, tuple[tuple[str, Value], ...]]] = {
    "inductor.max_autotune_gemm_backends": _AUTOTUNE,
    "inductor.max_autotune_gemm_search_space": _AUTOTUNE,
    "inductor.autotune_in_subproc": _AUTOTUNE,
    "inductor.use_experimental_benchmarker": _AUTOTUNE,
    f"process.{tunableop.TUNING}": ((f"process.{tunableop.ENABLED}", "1"),),
}

# Settings that matter where the CPU does the work; the values are numbers of threads, at most one per core.
CPU_THREADS: Final = ("process.OMP_NUM_THREADS",)

# The variable that selects the GPUs of a process.
VISIBLE_DEVICES: Final[Mapping[Platform, str]] = {
    Platform.ROCM: "HIP_VISIBLE_DEVICES",
    Platform.CUDA: "CUDA_VISIBLE_DEVICES",
}
# AMD's kernel driver has eight address spaces for the processes on a GPU (VMID 8 to 15); more processes take turns.
MAX_PROCESSES_PER_GPU: Final[Mapping[Platform, int]] = {Platform.ROCM: 8}
DEFAULT_MAX_PROCESSES_PER_GPU: Final = 64  # on platforms that are not in the table above
