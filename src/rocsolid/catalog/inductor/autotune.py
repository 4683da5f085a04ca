"""Settings for autotuning: which kernels are benchmarked, how, and by how many processes."""

from rocsolid.model.evidence import Evidence, claim, issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, Variable, on

_ROCM = on(Platform.ROCM)
_CONFIG = "torch 2.13 _inductor/config.py"
_H200_RUN = "settings-on-h200"

_AUTOTUNE_HANGS = issue(
    "pytorch/pytorch#140395",
    ("A compile with max-autotune never ends, and no message names the kernel that is being benchmarked."),
)
_IMAGE_SETS_IT = source(
    "sglang docker/rocm.Dockerfile",
    "The public ROCm images end with ENV TORCHINDUCTOR_MAX_AUTOTUNE=1 and ..._POINTWISE=1.",
)


def _autotune(
    name: str,
    variable: str,
    summary: str,
    operation: str,
    cost: Evidence,
) -> Setting:
    """One of the three autotuning settings, which differ only in the operations they benchmark."""
    return Setting(
        owner=Owner.INDUCTOR,
        name=name,
        value_type=bool,
        summary=summary,
        variable=Variable(name=variable),
        candidates=(False, True),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why=f"With True, autotuning benchmarks several variants of each {operation}, and it has no deadline of its own.",
                evidence=(_AUTOTUNE_HANGS, cost, _IMAGE_SETS_IT),
                when=_ROCM,
                guard=True,
            ),
            Recommendation(
                profile="safe",
                value=False,
                why=f"With True, autotuning benchmarks several variants of each {operation}, and it has no deadline of its own.",
                evidence=(_AUTOTUNE_HANGS, cost),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.CRITICAL,
                check="autotune-runs",
                why=(
                    f"Every compile, in every mode, benchmarks several variants of each {operation}, without a deadline and without "
                    f"a message."
                ),
                evidence=(_AUTOTUNE_HANGS, _IMAGE_SETS_IT),
                when=_ROCM,
            ),
            Hazard(
                value=True,
                severity=Severity.WARNING,
                why=(
                    f"Every compile, in every mode, benchmarks several variants of each {operation}, and can take many times longer."
                ),
                evidence=(_AUTOTUNE_HANGS, cost),
            ),
        ),
        evidence=(
            source(f"{_CONFIG} {name}", "The variable is read when the module is imported and sets the default."),
        ),
    )


SETTINGS = (
    _autotune(
        "max_autotune",
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        "Benchmark several kernels for each matmul, convolution and reduction, and use the fastest.",
        "matmul and convolution",
        measured(
            _H200_RUN,
            (
                "With True, ResNet-50 was still compiling after 150 s (with False: 21 s), and GPT-2 took "
                "41 s (with False: 16 s)."
            ),
        ),
    ),
    _autotune(
        "max_autotune_pointwise",
        "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE",
        "Benchmark several launch configurations for each pointwise and reduction kernel.",
        "generated kernel",
        measured(_H200_RUN, "On CUDA, three models compiled as fast as with the default, and ran no faster."),
    ),
    _autotune(
        "max_autotune_gemm",
        "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM",
        "Benchmark several kernels for each matmul and use the fastest.",
        "matmul",
        measured(
            _H200_RUN,
            (
                "GPT-2 with all three autotuning settings on: set-up 41 s (off: 16 s), 0.493 ms per "
                "call (off: 0.566 ms)."
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="max_autotune_gemm_backends",
        value_type=str,
        summary="Which libraries and templates are benchmarked when matmuls are autotuned.",
        variable=Variable(name="TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS"),
        candidates=("ATEN", "ATEN,TRITON", "ATEN,TRITON,CK"),
        recommendations=(
            Recommendation(
                profile="safe",
                value="ATEN",
                why=(
                    "If something turns autotuning on, ATEN is then the only candidate for a matmul, "
                    "so nothing is benchmarked. With autotuning off, the setting is not read."
                ),
                evidence=(
                    source(
                        "torch 2.13 _inductor/utils.py use_triton_template",
                        ("The setting is read only when autotuning is on."),
                    ),
                ),
                when=_ROCM,
            ),
        ),
        notes=(
            "With autotuning off this setting has no effect, so it neither causes nor fixes a slow matmul. "
            "Choices: ATEN, TRITON and CPP everywhere; CK and CKTILE on AMD Instinct; CUTLASS, CUTEDSL and NVGEMM on NVIDIA; "
            "from torch 2.15 on also FLYDSL on ROCm, which is experimental and only used for float16 and bfloat16 on gfx950."
        ),
        evidence=(
            source(
                "torch 2.13 _inductor/utils.py use_triton_template", ("The setting is read only when autotuning is on.")
            ),
            source(
                "torch 2.15.0 _inductor/utils.py use_flydsl_gemm_template",
                "FLYDSL is used on gfx950 only, for float16 and bfloat16, and if its package is installed.",
            ),
            claim(
                "Inductor config guide",
                "ATEN is 35 to 55 % faster than Triton for matmuls on AMD; no workload or version is given.",
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="max_autotune_conv_backends",
        value_type=str,
        summary="Which libraries and templates are benchmarked when convolutions are autotuned.",
        variable=Variable(name="TORCHINDUCTOR_MAX_AUTOTUNE_CONV_BACKENDS"),
        candidates=("ATEN", "ATEN,TRITON"),
        notes=(
            "max_autotune_gemm also autotunes convolutions. With ATEN here it does not: on one H200, max-autotune of "
            "MobileNet V3 took 415 s."
        ),
        evidence=(
            source("torch 2.13 _inductor/kernel/conv.py", "Triton templates are added when max_autotune_gemm is on."),
            measured("max-autotune-on-h200", "Set-up of MobileNet V3 with max-autotune: 415 s."),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="max_autotune_gemm_search_space",
        value_type=str,
        summary="How many configurations of each matmul template are tried when matmuls are autotuned.",
        variable=Variable(name="TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_SEARCH_SPACE"),
        candidates=("DEFAULT",),
        hazards=(
            Hazard(
                value="EXHAUSTIVE",
                severity=Severity.WARNING,
                why="Hundreds of configurations are compiled and timed for each matmul shape.",
                evidence=(source(f"{_CONFIG} max_autotune_gemm_search_space", "EXHAUSTIVE tries every combination."),),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="autotune_in_subproc",
        value_type=bool,
        summary="Benchmark matmul kernels in a child process, with a limit of 60 s for each.",
        variable=Variable(name="TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC"),
        candidates=(False, True),
        notes="Off by default, so a kernel that hangs the GPU also hangs the compile.",
        evidence=(source(f"{_CONFIG} autotune_in_subproc", "Off by default; the timeouts apply only when it is on."),),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="use_experimental_benchmarker",
        value_type=bool,
        summary="Time kernels during autotuning with Inductor's own benchmarker instead of Triton's.",
        variable=Variable(name="TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER", overrides_config=True),
        candidates=(True, False),
        notes=(
            "On MI300X it flushes only 4 MB of the 256 MB cache between runs, so the ranking of "
            "kernels is mostly noise."
        ),
        evidence=(
            issue("pytorch/pytorch#192159", ("The flushed memory is far smaller than the MI300X's last-level cache.")),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="coordinate_descent_tuning",
        value_type=bool,
        summary=(
            "After a Triton kernel's launch configuration is chosen, change its parameters one at a "
            "time and keep each change that makes the kernel faster."
        ),
        variable=Variable(name="TORCHINDUCTOR_COORDINATE_DESCENT_TUNING"),
        candidates=(False, True),
        recommendations=(
            Recommendation(
                profile="safe",
                value=False,
                why="With True, set-up took twice as long and none of three models became faster.",
                evidence=(
                    measured(
                        _H200_RUN,
                        (
                            "With True and with False: ResNet-50 0.431 and 0.409 ms, GPT-2 0.572 and "
                            "0.568 ms, T5 0.238 and 0.235 ms; set-up 43 and 21 s."
                        ),
                    ),
                ),
            ),
        ),
        hazards=(
            Hazard(
                value=True,
                severity=Severity.INFO,
                undecidable="it needs the three models of the measurement",
                why="Compiles take about twice as long; none of three models became faster.",
                evidence=(
                    measured(
                        _H200_RUN,
                        (
                            "ResNet-50: set-up took 43 s with True and 21 s with False; "
                            "with True each call was 5 % slower."
                        ),
                    ),
                ),
            ),
        ),
        disagreement=(
            "Public ROCm guides disagree: the Inductor config guide turns it on, the overview guide "
            "and the porting guide turn it off. We recommend off: with it on, three public models took "
            "longer to compile and none became faster. `rocsolid tune` can try it on your model."
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="benchmark_kernel",
        value_type=bool,
        summary="Write a benchmark harness into each generated kernel file.",
        variable=Variable(name="TORCHINDUCTOR_BENCHMARK_KERNEL"),
        notes=(
            "It adds code to the generated file and leaves the kernel unchanged. Nothing is "
            "benchmarked during the compile."
        ),
        evidence=(
            source(
                "torch 2.13 _inductor/codegen/simd.py config.benchmark_kernel",
                ("The code that reads it only writes a benchmark harness into the file."),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="triton.multi_kernel",
        value_type=int,
        summary=(
            "Generate each reduction as two kernels, one persistent and one with a loop, time both "
            "at the first call and use the faster one."
        ),
        variable=Variable(name="TORCHINDUCTOR_MULTI_KERNEL"),
        candidates=(0, 1),
        recommendations=(
            Recommendation(
                profile="safe",
                value=0,
                why="With 1, kernels are timed at the first call; this fails inside a capture.",
                evidence=(
                    source(
                        "torch 2.13 _inductor/codegen/multi_kernel.py MultiKernelCall",
                        ("With 1, the kernels are benchmarked in the first call."),
                    ),
                    measured(_H200_RUN, "With 1, none of three models became faster."),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="compile_worker_wait_timeout",
        value_type=int,
        summary=(
            "Seconds to wait for a compile worker before raising an error that names the kernel; 0 waits forever."
        ),
        variable=Variable(name="TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT"),
        valid=on(torch="2.13.."),
        recommendations=(
            Recommendation(
                profile="safe",
                value=900,
                why=(
                    "If a compile worker dies or hangs, there is an error with the kernel's name after "
                    "900 s. With 0, the compile waits forever."
                ),
                evidence=(
                    issue("pytorch/pytorch#191183", "A compile worker that hangs blocks the compile forever."),
                    source(
                        f"{_CONFIG} compile_worker_wait_timeout",
                        ("The default is 0, no timeout. Upstream's CI uses 300."),
                    ),
                ),
            ),
        ),
    ),
    Setting(
        owner=Owner.INDUCTOR,
        name="compile_threads",
        value_type=int,
        summary="How many processes compile kernels in parallel.",
        variable=Variable(name="TORCHINDUCTOR_COMPILE_THREADS"),
        notes=(
            "The default is the number of cores that this process may use, up to 32. On MI350 "
            "machines, many workers were reported to overload the kernel driver."
        ),
        evidence=(
            issue(
                "pytorch/pytorch#191493", ("Proposes fewer workers on ROCm, because many workers overload the driver.")
            ),
        ),
    ),
)
