"""Variables that PyTorch itself reads and that have no Python setting beside them."""

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
        summary=f"Replaces {what} for chosen graphs, above everything a program says.",
        valid=on(torch="2.11.."),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="From torch 2.12 on it beats Python, modes and options, and a program cannot take it back.",
                evidence=(
                    source("torch 2.13 _dynamo/config.py", f"{name} is read for every graph."),
                    measured("compiler-facts-torch-2.13-cpu", "It overrode options given to the call."),
                ),
            ),
        ),
        notes="Meant for bisecting. A wrong key raises when the first graph is compiled.",
    )


SETTINGS = (
    _override("Inductor settings", "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS"),
    _override("Dynamo settings", "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS"),
    _override("the backend", "TORCH_COMPILE_OVERRIDE_BACKENDS"),
    Setting(
        owner=Owner.PROCESS,
        name="TORCHDYNAMO_DISABLE",
        value_type=str,
        summary="1 makes torch.compile do nothing.",
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                why="torch.compile returns the function unchanged, everywhere in this process.",
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
                why="Who calls torch.compile wants it compiled.",
                evidence=(source("torch 2.13 _dynamo/eval_frame.py TORCHDYNAMO_DISABLE", "1 disables."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_LOGS",
        value_type=str,
        summary="Which of torch's logs are shown.",
        recommendations=(
            Recommendation(
                profile="debug",
                value="graph_breaks,recompiles,cudagraphs",
                why="Every graph break, every recompile with the guard that failed, every graph that was not captured.",
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
        summary="Where compiled graphs and kernels are kept; the system's temporary folder when unset.",
        notes="A temporary folder is often empty after a container restarts, and then everything is compiled again.",
        evidence=(
            source("torch 2.13 _inductor/runtime/cache_dir_utils.py cache_dir", "Falls back to the temporary folder."),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="DISABLE_ADDMM_CUDA_LT",
        value_type=str,
        summary="1 keeps bias-added matmuls away from cuBLASLt or hipBLASLt.",
        former_names=("DISABLE_ADDMM_HIP_LT",),
        candidates=("0", "1"),
        notes="The fix for consumer chips where hipBLASLt crashes. The HIP spelling is from 2023 and no longer read.",
        evidence=(
            issue("pytorch/pytorch#138067", "This spelling works; hipBLASLt fails on chips it does not support."),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_BLAS_PREFER_HIPBLASLT",
        value_type=str,
        summary="1 sends matmuls to hipBLASLt, 0 to rocBLAS; unset, torch decides by the chip.",
        former_names=("TORCH_BLAS_PREFER_CUBLASLT",),
        candidates=("0", "1"),
        hazards=(
            Hazard(
                value="1",
                severity=Severity.CRITICAL,
                why="hipBLASLt has no kernels for this chip: matmuls fail or crash.",
                evidence=(issue("ROCm/legacy-rocm-build#6271", "Crash on a consumer chip with this variable set."),),
                when=on(Platform.ROCM, archs=("gfx11", "gfx12")),
            ),
        ),
        evidence=(source(f"{_CONTEXT} blas_preferred_backend", "Both spellings are read on both platforms."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_ROCM_FA_PREFER_CK",
        value_type=str,
        summary="1 runs flash attention with Composable Kernel instead of AOTriton.",
        candidates=("0", "1"),
        valid=_ROCM,
        evidence=(source(f"{_CONTEXT} rocm_fa_preferred_backend", "1 selects CK."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_ENABLED",
        value_type=str,
        summary="1 lets TunableOp choose among BLAS kernels, from a file or by timing them.",
        candidates=("0", "1"),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="Once enabled it also times kernels in the running program, at the first sight of every shape.",
                evidence=(source(f"{_TUNABLE}", "Tuning is on by default once TunableOp is enabled."),),
                when=_ROCM,
            ),
        ),
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                why="Unless PYTORCH_TUNABLEOP_TUNING=0, every new matmul shape is timed in the running program, "
                "inside a compile or a warm-up as well.",
                evidence=(source(f"{_TUNABLE}", "Tuning is on by default once TunableOp is enabled."),),
                when=_ROCM,
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_TUNING",
        value_type=str,
        summary="0 uses stored TunableOp results and times nothing; unset counts as 1.",
        candidates=("0", "1"),
        evidence=(source(f"{_TUNABLE}", "Default 1."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_FILENAME",
        value_type=str,
        summary="The file TunableOp reads and writes; the device's number is put into its name.",
        evidence=(source(f"{_TUNABLE}", "Default tunableop_results.csv."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS",
        value_type=str,
        summary="The longest time spent on one candidate of one shape.",
        evidence=(source(f"{_TUNABLE}", "Default 30."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_CUDAGRAPH_GC",
        value_type=str,
        summary="1 runs Python's garbage collector before every device-graph capture.",
        valid=on(torch="2.9.."),
        evidence=(source("torch 2.13 cuda/graphs.py force_cudagraph_gc", "Off by default since 2.9."),),
    ),
)
