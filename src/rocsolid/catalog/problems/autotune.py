"""Searches that take for ever or choose by noise."""

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="max-autotune-many-shapes-gfx950",
        title="max-autotune dies on the second input shape on gfx950",
        when=on(Platform.ROCM, torch="2.12..2.14", archs=("gfx95",)),
        severity=Severity.WARNING,
        symptom=(
            'A model compiled with mode="max-autotune" runs for one shape and raises '
            "hipErrorStreamCaptureInvalidated once further shapes arrive."
        ),
        fix='mode="max-autotune-no-cudagraphs", or "reduce-overhead", which worked in the same test.',
        verify="Run four sequence lengths through the compiled model; none may raise.",
        status="closed as read 2026-09 without a fixing version in the stored part",
        evidence=(
            issue(
                "pytorch/pytorch#193735",
                "Encoder with sequence lengths 64 to 512 on gfx950: max-autotune fails, default and reduce-overhead succeed.",
            ),
        ),
    ),
    KnownProblem(
        id="max-autotune-left-on-by-image",
        title="An image's environment switches autotuning on for every compile",
        when=on(Platform.ROCM, Platform.CUDA),
        severity=Severity.WARNING,
        symptom=("torch.compile in default mode benchmarks kernels for minutes or hours although nobody asked for it."),
        fix=(
            "unset TORCHINDUCTOR_MAX_AUTOTUNE TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE "
            'TORCHINDUCTOR_MAX_AUTOTUNE_GEMM, or pass options={"max_autotune": False, "max_autotune_pointwise":'
            ' False, "max_autotune_gemm": False}.'
        ),
        verify="A first compile of a small model takes seconds, and `env | grep MAX_AUTOTUNE` is empty.",
        status="still in sglang's ROCm images as read 2026-09",
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
            issue("sgl-project/sglang#1939", "Where they came in, in November 2024, described as safe to turn on."),
            source(
                "torch 2.13.0 torch/_inductor/config.py max_autotune",
                "The variables only move the default, so an assignment or option wins over them.",
            ),
        ),
    ),
    KnownProblem(
        id="autotune-flush-too-small",
        title="Autotuning ranks by noise on MI300: it flushes 4 MB of a 256 MB cache",
        when=on(Platform.ROCM, torch="2.8..2.15", archs=("gfx94", "gfx95")),
        severity=Severity.WARNING,
        symptom=(
            "Inductor picks slow configurations for memory-bound kernels, and another one in the next run; the "
            "slowest can rank first."
        ),
        fix=(
            "TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER=0 (Triton's 256 MB flush), or on torch 2.13 and later "
            "TORCHINDUCTOR_USE_TORCH_PROFILER_BENCHMARKER=1."
        ),
        verify=(
            "Compile a 4096 x 4096 layer_norm in five fresh caches with TORCH_LOGS=+inductor; the same "
            "configuration must win each time."
        ),
        status="open as read 2026-09; still so in torch 2.15.0",
        evidence=(
            issue(
                "pytorch/pytorch#192159",
                "The reported L2 is 4 MB per die while a 256 MB cache follows; a spread of 1.64 shrinks to 2.6 % and the worst wins.",
            ),
            source(
                "torch 2.8.0 to 2.15.0 torch/_inductor/runtime/benchmarking.py",
                "The flush buffer has the size of the reported L2; only the profiler-based benchmarker of 2.13 and later keeps 256 MB on ROCm.",
            ),
        ),
    ),
    KnownProblem(
        id="autotune-hang",
        title="Compilation hangs while tuning a kernel, with no sign of which",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU),
        severity=Severity.INFO,
        symptom=(
            "torch.compile stops for hours; py-spy shows it inside a benchmark of one candidate, and traces do "
            "not name the kernel."
        ),
        fix=(
            'TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC=1 so that a bad candidate dies in a child, mode="default", or '
            "tune under a deadline in a separate process."
        ),
        verify="The compile ends within its limit, and TORCH_LOGS=+inductor names each candidate.",
        status="open as read 2026-09",
        evidence=(
            issue(
                "pytorch/pytorch#140395",
                "max-autotune under DDP hangs; a maintainer finds that the trace does not tell which kernel.",
            ),
            issue(
                "pytorch/pytorch#158042",
                "A grouped matmul tuned, and hung, even in default mode; worked around by falling back.",
            ),
            source(
                "torch 2.9.1 to 2.15.0 torch/_inductor/config.py autotune_in_subproc",
                "Off by default in every release read.",
            ),
        ),
    ),
    KnownProblem(
        id="compile-worker-waits-forever",
        title="The main process waits forever for a compile worker that died",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU, torch="..2.13"),
        severity=Severity.INFO,
        symptom=(
            "Compilation stands still after a worker was killed, by the out-of-memory killer for instance; no "
            "error, no CPU use."
        ),
        fix=(
            "torch 2.14 or later notices the death. On 2.13 and later set "
            "TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT=600 as well; on any version "
            "TORCHINDUCTOR_COMPILE_THREADS=1 avoids the pool."
        ),
        verify="Kill the compile_worker process during a compile: the program must raise within the limit.",
        status="death noticed since torch 2.14; no time limit by default in 2.15 (limits proposed in #191183)",
        evidence=(
            issue(
                "pytorch/pytorch#189290",
                "Inherited pipe ends kept the parent from seeing the death; three layers of defence.",
            ),
            issue(
                "pytorch/pytorch#191183",
                "Open proposal for memory and time limits, and that the wait defaults to forever.",
            ),
            source(
                "torch 2.13.0 torch/_inductor/config.py compile_worker_wait_timeout",
                "The setting exists from 2.13 on and defaults to 0, no limit.",
            ),
            source(
                "torch 2.13.0 and 2.14.1 torch/_inductor/compile_worker/subproc_pool.py",
                "The parent closes its pipe copies from 2.14 on.",
            ),
        ),
    ),
    KnownProblem(
        id="compile-workers-overload-kfd",
        title="Too many compile workers thrash the GPU queues on MI350",
        when=on(Platform.ROCM, archs=("gfx95",)),
        severity=Severity.WARNING,
        symptom="Autotuning stalls for half an hour or hangs; 32 workers each hold a GPU context on one device.",
        fix="TORCHINDUCTOR_COMPILE_THREADS=16 or fewer per GPU, and set a CPU limit for the container.",
        verify="The compile finishes, and `rocm-smi --showpids` lists no more clients than workers.",
        status="pytorch's CI caps it at 16; the library default is unchanged as read 2026-09",
        evidence=(
            issue(
                "pytorch/pytorch#191493", "Explains the oversubscribed runlist: forked workers inherit the HIP context."
            ),
            issue("pytorch/pytorch#191385", "Sets 16 threads for pytorch's ROCm test jobs."),
        ),
    ),
    KnownProblem(
        id="tunableop-tunes-unasked",
        title="PYTORCH_TUNABLEOP_ENABLED=1 also tunes, and its time limits do not bound it",
        when=on(Platform.ROCM),
        severity=Severity.WARNING,
        symptom=(
            "The first call with each new matmul shape stalls for seconds to minutes; maximum duration and "
            "iterations are not respected per operation."
        ),
        fix="Tune offline once, then run with PYTORCH_TUNABLEOP_TUNING=0 and the results file.",
        verify="PYTORCH_TUNABLEOP_VERBOSE=2 shows no tuning lines in production.",
        status="by design; reports closed as read 2026-09",
        variables=("PYTORCH_TUNABLEOP_ENABLED=1",),
        covered_by="ENV001",
        evidence=(
            issue("pytorch/pytorch#128813", "The table of variables: enabled defaults to 0, tuning defaults to 1."),
            issue("pytorch/pytorch#190433", "Limits of 50 ms and 5 iterations did not stop the tuning (torch 2.12)."),
            issue("ROCm/TheRock#5550", "Explanation: every candidate runs at least once."),
        ),
    ),
)
