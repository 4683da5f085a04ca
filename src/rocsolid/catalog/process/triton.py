"""Environment variables of the Triton compiler."""

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, on

_KNOBS = "triton 3.7 knobs.py"
_ROCM = on(Platform.ROCM)

SETTINGS = (
    Setting(
        owner=Owner.PROCESS,
        name="TRITON_CACHE_DIR",
        value_type=str,
        names_file=True,
        summary="The folder for compiled Triton kernels. With Inductor it is inside Inductor's cache folder.",
        evidence=(source(f"{_KNOBS} cache.dir", "If the variable is not set, ~/.triton/cache is used."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TRITON_ALWAYS_COMPILE",
        value_type=str,
        summary="1 ignores the cache and compiles every kernel again.",
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                why="Kernels are never taken from the cache, so every process compiles them again.",
                evidence=(
                    source(f"{_KNOBS} compilation.always_compile", ("With 1, Triton does not look into the cache.")),
                ),
            ),
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="If it is not set, kernels are compiled once and then taken from the cache.",
                evidence=(source(f"{_KNOBS} compilation.always_compile", "It is off by default."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TRITON_INTERPRET",
        value_type=str,
        summary="1 runs Triton kernels in a Python interpreter.",
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                why="Kernels run in Python, thousands of times slower, and cannot be captured.",
                evidence=(
                    source(
                        f"{_KNOBS} runtime.interpret",
                        ("With 1, kernels run in an interpreter instead of being compiled."),
                    ),
                ),
            ),
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why=("The variable is only for debugging a kernel: with 1, kernels run in a Python interpreter."),
                evidence=(source(f"{_KNOBS} runtime.interpret", "It is off by default."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TRITON_PRINT_AUTOTUNING",
        value_type=str,
        summary="1 prints the configuration that Triton's autotuner chose.",
        recommendations=(
            Recommendation(
                profile="debug",
                value="1",
                why="Shows which kernels are being autotuned when a compile takes a long time.",
                evidence=(source(f"{_KNOBS} autotuning.print", ("With 1, Triton prints the chosen configuration.")),),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TRITON_DEFAULT_FP_FUSION",
        value_type=str,
        summary="0 keeps multiply and add separate, as eager does; 1 lets the compiler fuse them.",
        candidates=("0", "1"),
        notes="Triton 3.9 warns that the default will change in 3.10.",
        evidence=(source(f"{_KNOBS} language.default_fp_fusion", "Fusing is on by default."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="AMDGCN_USE_BUFFER_OPS",
        value_type=str,
        summary="Whether Triton uses buffer instructions on AMD GPUs.",
        hazards=tuple(
            Hazard(
                value=value,
                severity=Severity.WARNING,
                why=(
                    "No value is correct for all kernels: 0 fixed wrong results in one kernel and "
                    "caused wrong results in another. Set the variable only for a single kernel that "
                    "needs it."
                ),
                evidence=(
                    issue("ROCm/triton#830", "Reports wrong results that disappear with 0."),
                    issue("ROCm/triton#947", "Reports wrong results that occur only with 0."),
                ),
                when=_ROCM,
            )
            for value in ("0", "1")
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="0 and 1 have both caused wrong results. If the variable is not set, Triton decides.",
                evidence=(
                    issue("ROCm/triton#830", "Reports wrong results that disappear with 0."),
                    issue("ROCm/triton#947", "Reports wrong results that occur only with 0."),
                ),
                when=_ROCM,
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TRITON_HIP_USE_BLOCK_PINGPONG",
        value_type=str,
        summary=("Whether matmul kernels on AMD GPUs run as two groups of waves that alternate (block ping-pong)."),
        candidates=("0", "1"),
        valid=_ROCM,
        evidence=(source(f"{_KNOBS} amd.use_block_pingpong", "If the variable is not set, Triton decides."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="TRITON_HIP_USE_ASYNC_COPY",
        value_type=str,
        summary="Whether kernels on AMD GPUs copy into LDS (shared memory) asynchronously.",
        candidates=("0", "1"),
        valid=_ROCM,
        evidence=(source(f"{_KNOBS} amd.use_async_copy", "If the variable is not set, Triton decides."),),
    ),
)
