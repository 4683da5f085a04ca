"""Settings that came, or got another default, with torch 2.10 to 2.15, read in the config files of the official wheels."""

from rocsolid.model.evidence import Evidence, issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Condition, Hazard, Owner, Setting, Variable, on

_ROCM = on(Platform.ROCM)


def _read(name: str, statement: str, release: str = "2.15.0") -> Evidence:
    return source(f"torch {release} torch/_inductor/config.py {name}", statement)


def _setting(  # noqa: PLR0913 - one per column
    name: str,
    value_type: type,
    since: str,
    summary: str,
    statement: str,
    *,
    variable: str = "",
    hazards: tuple[Hazard, ...] = (),
    notes: str = "",
    on_off: bool = True,
) -> Setting:
    valid: Condition = on(torch=f"{since}..")
    declared = Variable(name=variable) if on_off else Variable(name=variable, on="", off="")
    return Setting(
        owner=Owner.INDUCTOR,
        name=name,
        value_type=value_type,
        summary=summary,
        valid=valid,
        variable=declared if variable else None,
        hazards=hazards,
        notes=notes,
        evidence=(_read(name.rpartition(".")[2], statement),),
    )


SETTINGS = (
    _setting(
        "rocm.origami",
        bool,
        "2.13",
        "On ROCm with max_autotune, let the package rocm-origami preselect the Triton configurations of matmuls.",
        "Needs max_autotune, the search space DEFAULT, the package rocm-origami and a ROCm release before 10.0.",
        variable="TORCHINDUCTOR_ORIGAMI",
        notes=(
            "The default is True since torch 2.14, and False in 2.13. The variable is read at import; an assignment "
            "later has no effect. Without the package nothing changes."
        ),
    ),
    _setting(
        "partitioned_scatter_enabled",
        bool,
        "2.11",
        "Split `index_put(accumulate=True)` with many equal indices over several buffers, and add them up.",
        "The default is True in builds with HIP since 2.14, and False in all other builds.",
        variable="TORCHINDUCTOR_PARTITIONED_SCATTER_ENABLED",
        notes="It needs more memory while it runs. Sums are added in another order, so results can differ in the last bits.",
    ),
    _setting(
        "autotune_cudagraph_benchmarking",
        bool,
        "2.14",
        "With max_autotune, time each candidate as a replayed CUDA graph instead of as a launch.",
        "Candidates are captured, and the replay is timed; only with max_autotune.",
        variable="TORCHINDUCTOR_AUTOTUNE_CUDAGRAPH_BENCHMARKING",
        hazards=(
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why="Every candidate is captured as a HIP graph, and a failed capture can end the process on ROCm.",
                evidence=(
                    issue(
                        "ROCm/rocm-libraries#11838",
                        "hipblasLtCreate is not safe during a capture, and calls exit(1) if it fails.",
                    ),
                ),
                when=_ROCM,
            ),
        ),
    ),
    _setting(
        "triton.cudagraph_dynamic_shape_rerecord_limit",
        int,
        "2.15",
        "How many different shapes Inductor records as CUDA graphs; further shapes run without a graph.",
        "The default None sets no limit.",
    ),
    _setting(
        "triton.cudagraph_managed_input_rerecord_limit",
        int,
        "2.15",
        "After how many address changes of an input that another graph made, the action below is taken.",
        "The default is 5.",
    ),
    _setting(
        "triton.cudagraph_managed_input_rerecord_action",
        str,
        "2.15",
        "What Inductor then does: `copy` the input into a fixed buffer, or `skip` the graph.",
        "The default is copy.",
    ),
    _setting(
        "triton.cudagraph_initial_mempool_allocation_gb",
        float,
        "2.15",
        "Allocate this much memory for Inductor's CUDA graphs at once, against fragmentation.",
        "The default None lets the pool grow.",
    ),
    _setting(
        "cudagraph_policy",
        object,
        "2.12",
        "An object that decides how Inductor wraps compiled code in CUDA graphs.",
        "post_compile hands the wrapping to the policy if one is set.",
        notes="vLLM and SGLang can set it; then `triton.cudagraphs` does not tell how graphs are captured.",
    ),
    _setting(
        "triton.cudagraph_trees_generation_cloning",
        str,
        "2.14",
        "Copy results that the user still holds before Inductor's CUDA graphs reuse their memory.",
        "None, the default, raises an error when an overwritten result is read; `user_visible` copies.",
    ),
    _setting(
        "numerics",
        str,
        "2.14",
        "How close to eager the generated code computes: default, strict_pointwise, strict_reduction or strict.",
        "The strict modes set eager_numerics.disable_ftz, division_rounding and emulate_precision_casts.",
        variable="TORCHINDUCTOR_NUMERICS",
        on_off=False,
        notes="The source says that not every part of Inductor uses it yet.",
    ),
    _setting(
        "batch_invariant",
        bool,
        "2.13",
        "Use the same kernel for every batch size, so that a sample's result does not depend on the others.",
        "It implies `deterministic`.",
        variable="TORCHINDUCTOR_BATCH_INVARIANT",
    ),
    _setting(
        "compile_worker_mode",
        str,
        "2.15",
        "Whether compile workers are processes or threads: process, thread or auto.",
        "The default is process; thread is for Python builds without the global lock.",
        variable="TORCH_COMPILE_WORKER_MODE",
        on_off=False,
    ),
    _setting(
        "compile_worker_watchdog_interval_seconds",
        int,
        "2.14",
        "How often torch records compile jobs that run for longer than this in its structured trace.",
        "It records them and ends nothing; 0 disables it.",
        variable="TORCHINDUCTOR_COMPILE_WORKER_WATCHDOG_INTERVAL",
        on_off=False,
        notes="It does not replace a deadline: `rs.compile(deadline_s=...)` cancels the compile.",
    ),
    _setting(
        "flydsl_enable_autotuning",
        bool,
        "2.15",
        "Let the experimental FlyDSL matmul templates for ROCm be autotuned.",
        "FLYDSL is a choice of max_autotune_gemm_backends in 2.15, and not in its default.",
        variable="FLYDSL_ENABLE_AUTOTUNING",
    ),
    _setting(
        "nvgemm_pdl",
        str,
        "2.15",
        "Programmatic dependent launch for NVGEMM kernels on NVIDIA GPUs: 0, 1 or auto.",
        "auto applies it to NVFP4 matmuls of measured shapes.",
        variable="TORCHINDUCTOR_NVGEMM_PDL",
        on_off=False,
    ),
    _setting(
        "keep_static_cubin_raw",
        bool,
        "2.13",
        "Keep the machine code of kernels in the cache entries, so that another machine can use them.",
        "Caches become larger; without it, a restored cache needs the local Triton cache too.",
        variable="TORCHINDUCTOR_KEEP_STATIC_CUBIN_RAW",
    ),
    _setting(
        "combo_kernel_max_distance",
        int,
        "2.13",
        "How far apart in the schedule kernels may be that are combined under the memory limit.",
        "The default is 64 in 2.15 and -1 (no limit) before; a search without limit can take quadratic time.",
    ),
    _setting(
        "triton.enable_pdl",
        bool,
        "2.10",
        "Programmatic dependent launch on NVIDIA GPUs since Hopper: the next kernel starts before the last has ended.",
        "Off by default.",
        variable="TORCHINDUCTOR_ENABLE_PDL",
    ),
)
