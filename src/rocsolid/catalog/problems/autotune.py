"""Known problems: autotuning that hangs, takes too long or picks kernels by noise."""

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="max-autotune-many-shapes-gfx950",
        title="max-autotune fails on the second input shape on gfx950",
        when=on(Platform.ROCM, torch="2.12..2.14", archs=("gfx95",)),
        severity=Severity.WARNING,
        symptom=(
            'A model compiled with mode="max-autotune" runs for one shape and raises '
            "hipErrorStreamCaptureInvalidated when other shapes arrive."
        ),
        fix=('Use mode="max-autotune-no-cudagraphs", or mode="reduce-overhead", which worked in the same test.'),
        verify="Run four sequence lengths through the compiled model; none may raise.",
        status="closed as of 2026-09; the part of the thread that we read names no version with a fix",
        evidence=(
            issue(
                "pytorch/pytorch#193735",
                (
                    "Encoder with sequence lengths 64 to 512 on gfx950: max-autotune fails, default and "
                    "reduce-overhead succeed."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="max-autotune-left-on-by-image",
        title=("max-autotune is on in every compile: the container image sets TORCHINDUCTOR_MAX_AUTOTUNE=1"),
        when=on(Platform.ROCM, Platform.CUDA),
        severity=Severity.WARNING,
        symptom=(
            "torch.compile in default mode benchmarks kernels for minutes or hours, although the program does "
            "not request it."
        ),
        fix=(
            "unset TORCHINDUCTOR_MAX_AUTOTUNE TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE "
            'TORCHINDUCTOR_MAX_AUTOTUNE_GEMM, or pass options={"max_autotune": False, '
            '"max_autotune_pointwise": False, "max_autotune_gemm": False}.'
        ),
        verify="The first compile of a small model takes seconds, and `env | grep MAX_AUTOTUNE` prints nothing.",
        status="still in sglang's ROCm images as of 2026-09",
        variables=(
            "TORCHINDUCTOR_MAX_AUTOTUNE=1",
            "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE=1",
            "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM=1",
        ),
        covered_by="CFG001",
        evidence=(
            source(
                "sglang docker/rocm.Dockerfile 004ae46 ENV TORCHINDUCTOR_MAX_AUTOTUNE",
                "The image ends with both variables set to 1.",
            ),
            issue("sgl-project/sglang#1939", "Added the variables in November 2024, described as safe to turn on."),
            source(
                "torch 2.13.0 torch/_inductor/config.py max_autotune",
                "The variables only change the default, so an assignment or option overrides them.",
            ),
        ),
    ),
    KnownProblem(
        id="autotune-flush-too-small",
        title="Autotuning chooses kernels at random on MI300: only 4 MB of a 256 MB cache are flushed",
        when=on(Platform.ROCM, torch="2.8..2.15", archs=("gfx94", "gfx95")),
        severity=Severity.WARNING,
        symptom=(
            "Inductor chooses slow configurations for memory-bound kernels, and different ones in the "
            "next run. Even the slowest one can be chosen."
        ),
        fix=(
            "Set TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER=0, which uses Triton's benchmarker with a "
            "256 MB flush. On torch 2.13 and later, TORCHINDUCTOR_USE_TORCH_PROFILER_BENCHMARKER=1 "
            "helps as well."
        ),
        verify=(
            "Compile a 4096 x 4096 layer_norm five times with TORCH_LOGS=+inductor, each time with an "
            "empty cache folder. The same configuration must be chosen each time."
        ),
        status="open as of 2026-09; unchanged in torch 2.15.0",
        check="cited-source",
        evidence=(
            issue(
                "pytorch/pytorch#192159",
                (
                    "The GPU reports an L2 cache of 4 MB per die, but also has a 256 MB cache. The "
                    "slowest configuration takes 1.64 times as long as the fastest; autotuning "
                    "measures a difference of only 2.6 % and chooses the slowest."
                ),
            ),
            source(
                "torch 2.8.0 to 2.15.0 torch/_inductor/runtime/benchmarking.py",
                (
                    "Between runs, a buffer as large as the reported L2 cache is flushed. Only the "
                    "profiler-based benchmarker of 2.13 and later flushes 256 MB on ROCm."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="autotune-hang",
        title="max-autotune hangs while benchmarking a kernel and does not name it",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU),
        severity=Severity.INFO,
        symptom=(
            "torch.compile does not return for hours. py-spy shows it benchmarking one kernel, and stack "
            "traces do not name the kernel."
        ),
        fix=(
            "Set TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC=1, so that a kernel that hangs only blocks a child "
            'process. Or use mode="default". Or autotune in a separate process with a deadline.'
        ),
        verify=("The compile ends before its deadline, and TORCH_LOGS=+inductor names each kernel that was tried."),
        status="open as of 2026-09",
        undecidable="no program is known that always hangs",
        evidence=(
            issue(
                "pytorch/pytorch#140395",
                "max-autotune with DDP hangs; a maintainer finds that the trace does not name the kernel.",
            ),
            issue(
                "pytorch/pytorch#158042",
                "A grouped matmul was autotuned and hung even in default mode; worked around by a fallback.",
            ),
            source(
                "torch 2.9.1 to 2.15.0 torch/_inductor/config.py autotune_in_subproc",
                "Off by default in every release we checked.",
            ),
        ),
    ),
    KnownProblem(
        id="compile-worker-waits-forever",
        title="torch.compile waits forever for a compile worker that died",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU, torch="..2.13"),
        severity=Severity.INFO,
        symptom=(
            "The compile does not continue after a worker was killed, for example by the out-of-memory "
            "killer. There is no error and no CPU use."
        ),
        fix=(
            "Use torch 2.14 or later, which detects that a worker has died. On 2.13 and later, also "
            "set TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT=600. On any version, "
            "TORCHINDUCTOR_COMPILE_THREADS=1 compiles without workers."
        ),
        verify=("Kill the compile_worker process during a compile: the program must raise an error within that time."),
        status=(
            "dead workers are detected since torch 2.14; no time limit by default in 2.15 (limits proposed in #191183)"
        ),
        check="cited-source",
        evidence=(
            issue(
                "pytorch/pytorch#189290",
                (
                    "The parent process did not notice that a worker had died, because the pipe to it was "
                    "still open in other processes. The change adds three safeguards."
                ),
            ),
            issue(
                "pytorch/pytorch#191183",
                (
                    "Open proposal for memory and time limits; explains that by default torch waits for a "
                    "worker without a limit."
                ),
            ),
            source(
                "torch 2.13.0 torch/_inductor/config.py compile_worker_wait_timeout",
                "The setting exists from 2.13 on; its default is 0, which means no limit.",
            ),
            source(
                "torch 2.13.0 and 2.14.1 torch/_inductor/compile_worker/subproc_pool.py",
                "The parent closes its copies of the pipe from 2.14 on.",
            ),
        ),
    ),
    KnownProblem(
        id="compile-workers-overload-kfd",
        title="Autotuning stalls or hangs on MI350 because of too many compile workers",
        when=on(Platform.ROCM, archs=("gfx95",)),
        severity=Severity.WARNING,
        symptom="Autotuning stalls for half an hour or hangs. 32 workers each hold a GPU context on one device.",
        fix="Set TORCHINDUCTOR_COMPILE_THREADS to at most 16 per GPU, and set a CPU limit for the container.",
        verify="The compile finishes, and `rocm-smi --showpids` lists no more processes than workers.",
        status="pytorch's CI limits the workers to 16; the default of torch is unchanged as of 2026-09",
        undecidable="it depends on the number of workers and on other load",
        evidence=(
            issue(
                "pytorch/pytorch#191493",
                "Explains why the GPU has too many queues: forked workers inherit the HIP context.",
            ),
            issue("pytorch/pytorch#191385", "Sets 16 threads for pytorch's ROCm test jobs."),
        ),
    ),
    KnownProblem(
        id="tunableop-enabled-also-tunes",
        title=("PYTORCH_TUNABLEOP_ENABLED=1 also times kernels in the running program, and exceeds its time limits"),
        when=on(Platform.ROCM),
        severity=Severity.WARNING,
        symptom=(
            "The first call with each new matmul shape stalls for seconds to minutes. The limits on duration and iterations do not limit the total time of one operation."
        ),
        fix="Tune once in a separate run, then use the results file with PYTORCH_TUNABLEOP_TUNING=0.",
        verify="PYTORCH_TUNABLEOP_VERBOSE=2 shows no tuning lines in production.",
        status="intended behaviour; the reports are closed as of 2026-09",
        variables=("PYTORCH_TUNABLEOP_ENABLED=1",),
        covered_by="ENV001",
        evidence=(
            issue("pytorch/pytorch#128813", "The table of variables: enabled defaults to 0, tuning defaults to 1."),
            issue("pytorch/pytorch#190433", "Limits of 50 ms and 5 iterations did not stop the tuning (torch 2.12)."),
            issue("ROCm/TheRock#5550", ("Explains why the limits do not help: every kernel runs at least once.")),
        ),
    ),
)
