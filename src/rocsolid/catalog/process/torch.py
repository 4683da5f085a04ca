"""Environment variables that PyTorch reads and that have no Python setting."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, on

_ROCM = on(Platform.ROCM)
_TUNABLE = "pytorch aten/src/ATen/cuda/tunable/README.md"
_CONTEXT = "torch 2.13 include/ATen/Context.h"


def _override(what: str, name: str) -> Setting:
    return Setting(
        owner=Owner.PROCESS,
        name=name,
        value_type=str,
        summary=f"Replaces {what} for selected graphs, overriding everything set in the program.",
        valid=on(torch="2.11.."),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why=(
                    "From torch 2.12 on it overrides Python assignments, modes and options, and the program cannot "
                    "undo it."
                ),
                evidence=(
                    source("torch 2.13 _dynamo/config.py", f"{name} is read for every graph."),
                    measured("compiler-facts-torch-2.13-cpu", "It overrode options passed to torch.compile."),
                ),
            ),
        ),
        notes="Intended for bisecting. An invalid key raises an error when the first graph is compiled.",
    )


SETTINGS = (
    _override("Inductor settings", "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS"),
    _override("Dynamo settings", "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS"),
    _override("the backend", "TORCH_COMPILE_OVERRIDE_BACKENDS"),
    Setting(
        owner=Owner.PROCESS,
        name="TORCHDYNAMO_DISABLE",
        value_type=str,
        summary="1 makes torch.compile return functions unchanged.",
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                why="torch.compile returns every function unchanged in this process: nothing is compiled.",
                evidence=(
                    source(
                        "torch 2.13 _dynamo/eval_frame.py TORCHDYNAMO_DISABLE", "Checked when a function is wrapped."
                    ),
                ),
            ),
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="A program that calls torch.compile expects compiled code.",
                evidence=(source("torch 2.13 _dynamo/eval_frame.py TORCHDYNAMO_DISABLE", "1 disables torch.compile."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_LOGS",
        value_type=str,
        summary="Which of torch's logs are printed.",
        recommendations=(
            Recommendation(
                profile="debug",
                value="graph_breaks,recompiles,cudagraphs",
                why=(
                    "Shows every graph break, every recompile with the guard that failed, and every graph that was "
                    "not captured."
                ),
                evidence=(
                    source(
                        "torch 2.13 _logging/_registrations.py", "Registers graph_breaks, recompiles and cudagraphs."
                    ),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCHINDUCTOR_CACHE_DIR",
        value_type=str,
        summary=(
            "The folder for compiled graphs and kernels. If it is not set, the system's temporary folder is used."
        ),
        notes=("A temporary folder is often empty after a container restarts, and then everything is compiled again."),
        evidence=(
            source("torch 2.13 _inductor/runtime/cache_dir_utils.py cache_dir", "Falls back to the temporary folder."),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="DISABLE_ADDMM_CUDA_LT",
        value_type=str,
        summary="1 stops matmuls with bias (addmm) from using cuBLASLt or hipBLASLt.",
        former_names=("DISABLE_ADDMM_HIP_LT",),
        candidates=("0", "1"),
        notes=(
            "With 1, matmuls with bias no longer crash on consumer GPUs that hipBLASLt does not support. The former name "
            "DISABLE_ADDMM_HIP_LT is from 2023 and is no longer read."
        ),
        evidence=(
            issue("pytorch/pytorch#138067", "This spelling works. hipBLASLt fails on GPUs that it does not support."),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_BLAS_PREFER_HIPBLASLT",
        value_type=str,
        summary="1 runs matmuls with hipBLASLt, 0 with rocBLAS. If it is not set, torch decides by the GPU.",
        former_names=("TORCH_BLAS_PREFER_CUBLASLT",),
        candidates=("0", "1"),
        hazards=(
            Hazard(
                value="1",
                severity=Severity.CRITICAL,
                why="hipBLASLt has no kernels for this GPU: matmuls fail or crash.",
                evidence=(issue("ROCm/legacy-rocm-build#6271", "Crash on a consumer GPU with this variable set."),),
                when=on(Platform.ROCM, archs=("gfx11", "gfx12")),
            ),
        ),
        evidence=(source(f"{_CONTEXT} blas_preferred_backend", "Both spellings are read on both platforms."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_ROCM_FA_PREFER_CK",
        value_type=str,
        summary="1 runs flash attention with Composable Kernel (CK) instead of AOTriton.",
        candidates=("0", "1"),
        valid=_ROCM,
        evidence=(source(f"{_CONTEXT} rocm_fa_preferred_backend", "1 selects CK."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_ENABLED",
        value_type=str,
        summary="1 lets TunableOp choose among BLAS kernels, from a results file or by timing them.",
        candidates=("0", "1"),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="Once enabled, it also times kernels in the running program, the first time each shape occurs.",
                evidence=(source(_TUNABLE, "Tuning is on by default once TunableOp is enabled."),),
                when=_ROCM,
            ),
        ),
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                why=(
                    "Unless PYTORCH_TUNABLEOP_TUNING=0, every new matmul shape is timed in the running program, also "
                    "during a compile or a warm-up."
                ),
                evidence=(source(_TUNABLE, "Tuning is on by default once TunableOp is enabled."),),
                when=_ROCM,
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_TUNING",
        value_type=str,
        summary="0 uses stored TunableOp results and times nothing. If it is not set, it is 1.",
        candidates=("0", "1"),
        evidence=(source(_TUNABLE, "Default 1."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_FILENAME",
        value_type=str,
        summary="The file that TunableOp reads and writes. The device number is inserted into its name.",
        evidence=(source(_TUNABLE, "Default tunableop_results.csv."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS",
        value_type=str,
        summary="The longest time, in milliseconds, spent on timing one kernel for one shape.",
        evidence=(source(_TUNABLE, "Default 30."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_CUDAGRAPH_GC",
        value_type=str,
        summary="1 runs Python's garbage collector before every CUDA graph or HIP graph capture.",
        valid=on(torch="2.9.."),
        evidence=(source("torch 2.13 cuda/graphs.py force_cudagraph_gc", "Off by default since 2.9."),),
    ),
)
