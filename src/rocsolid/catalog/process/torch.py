"""Environment variables that PyTorch reads and that have no Python setting."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, on

_ROCM = on(Platform.ROCM)
_TUNABLE = "pytorch aten/src/ATen/cuda/tunable/README.md"
_CONTEXT = "torch 2.13 include/ATen/Context.h"


def _override(replaced: str, name: str, since: str = "2.11") -> Setting:
    return Setting(
        owner=Owner.PROCESS,
        name=name,
        value_type=str,
        names_file=True,  # it can set any other setting, including those that name a program
        summary=f"Replaces {replaced} for selected compiled graphs, and overrides everything that the program sets.",
        valid=on(torch=f"{since}.."),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why=(
                    "If it is set, it overrides assignments, modes and options (from torch 2.12 on), "
                    "and the program cannot undo this."
                ),
                evidence=(
                    source("torch 2.13 _dynamo/config.py", f"{name} is read for every graph."),
                    measured(
                        "compiler-facts-torch-2.13-cpu", ("The variable overrode options passed to torch.compile.")
                    ),
                ),
            ),
        ),
        notes=(
            "It is intended for finding the compiled graph that causes an error (bisecting). An "
            "invalid key raises an error when the first graph is compiled."
        ),
    )


SETTINGS = (
    _override("Inductor settings", "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS"),
    _override("Dynamo settings", "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS", since="2.12"),
    _override("the backend", "TORCH_COMPILE_OVERRIDE_BACKENDS"),
    Setting(
        owner=Owner.PROCESS,
        name="TORCHINDUCTOR_LITE_MODE",
        value_type=str,
        summary='With 1, every compile uses the settings of mode="lite": operators fall back, and passes are off.',
        valid=on(torch="2.15.."),
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                why="Compiled code is then hardly faster than eager, whatever mode= says.",
                evidence=(
                    source(
                        "torch 2.15.0 torch/_inductor/config.py lite_mode_default",
                        "With 1, fusion and graph passes are off by default; it is meant for torch's own tests.",
                    ),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_COMPILE_STATIC_SOURCES",
        value_type=str,
        summary="Inputs, by their names in Dynamo, whose sizes are never made dynamic.",
        valid=on(torch="2.15.."),
        evidence=(
            source(
                "torch 2.15.0 torch/compiler/config.py static_sources",
                "It is stronger than dynamic_sources and unbacked_sources.",
            ),
        ),
    ),
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
                        "torch 2.13 _dynamo/eval_frame.py TORCHDYNAMO_DISABLE",
                        ("The variable is checked when torch.compile is called."),
                    ),
                ),
            ),
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="With 1, torch.compile returns every function unchanged: nothing is compiled.",
                evidence=(source("torch 2.13 _dynamo/eval_frame.py TORCHDYNAMO_DISABLE", "1 disables torch.compile."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_LOGS",
        value_type=str,
        names_file=True,  # torch imports the package of a module that is named here
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
                        "torch 2.13 _logging/_registrations.py",
                        ("These names are registered: graph_breaks, recompiles and cudagraphs."),
                    ),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCHINDUCTOR_CACHE_DIR",
        value_type=str,
        names_file=True,
        summary=(
            "The folder for compiled graphs and kernels. If it is not set, the system's temporary folder is used."
        ),
        notes=("A temporary folder is often empty after a container restarts, and then everything is compiled again."),
        evidence=(
            source(
                "torch 2.13 _inductor/runtime/cache_dir_utils.py cache_dir",
                ("If the variable is not set, the temporary folder is used."),
            ),
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
            "With 1, matmuls with bias no longer crash on consumer GPUs that hipBLASLt does not support. The spelling "
            "DISABLE_ADDMM_HIP_LT is from 2023 and is no longer read."
        ),
        evidence=(
            issue(
                "pytorch/pytorch#138067",
                ("hipBLASLt fails on GPUs that it does not support; DISABLE_ADDMM_CUDA_LT=1 avoids it."),
            ),
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
                why="hipBLASLt has no kernels for these GPUs: matmuls fail or crash.",
                evidence=(
                    issue("ROCm/legacy-rocm-build#6271", ("Reports a crash on a consumer GPU with this variable set.")),
                ),
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
        summary=(
            "1 lets TunableOp choose the BLAS kernel of each matmul, from a results file or by timing the kernels."
        ),
        candidates=("0", "1"),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why=("With 1, kernels are also timed in the running program, the first time each shape occurs."),
                evidence=(source(_TUNABLE, "Tuning is on by default once TunableOp is enabled."),),
                when=_ROCM,
            ),
        ),
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                check="problem:tunableop-enabled-also-tunes",
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
        summary="0 uses stored TunableOp results and times nothing; 1, the default, times every new shape.",
        candidates=("0", "1"),
        evidence=(source(_TUNABLE, "The default is 1."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_FILENAME",
        value_type=str,
        names_file=True,
        summary="The file that TunableOp reads and writes. The device number is inserted into its name.",
        evidence=(source(_TUNABLE, "The default is tunableop_results.csv."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS",
        value_type=str,
        summary="The longest time, in milliseconds, spent on timing one kernel for one shape.",
        evidence=(source(_TUNABLE, "The default is 30."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TORCH_CUDAGRAPH_GC",
        value_type=str,
        summary="1 runs Python's garbage collector before every CUDA graph or HIP graph capture.",
        valid=on(torch="2.9.."),
        evidence=(source("torch 2.13 cuda/graphs.py force_cudagraph_gc", "It is off by default since 2.9."),),
    ),
)
