"""Known problems of drivers, memory allocators, installed packages and the host."""

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="expandable-segments-on-rocm",
        title="expandable_segments:True hangs or causes memory faults on ROCm",
        when=on(Platform.ROCM, torch="2.11.."),
        severity=Severity.CRITICAL,
        symptom=(
            "With the setting, moving a tensor of 2 GB to the GPU can hang in the driver forever, RDNA "
            "4 GPUs can report memory faults, and a program cannot recover from a failed capture. "
            "Before torch 2.11 the setting has no effect on ROCm."
        ),
        fix=(
            "Remove expandable_segments:True from PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF and "
            "PYTORCH_ALLOC_CONF. If it must stay, do not combine it with max_split_size_mb."
        ),
        verify=(
            "`python -c \"import torch; torch.zeros(1<<30, dtype=torch.float16).to('cuda'); print('ok')\"` prints"
            " ok within seconds."
        ),
        status=(
            "open as of 2026-09 (hang on a 2.14 nightly with rocm7.2); one crash report closed as not reproducible"
        ),
        variables=(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
        covered_by="ENV001",
        evidence=(
            issue(
                "pytorch/pytorch#192259",
                (
                    "Uninterruptible hang in hsaKmtMemoryVaMap on 2.14.0.dev with rocm7.2; it disappears without the "
                    "setting."
                ),
            ),
            issue(
                "pytorch/pytorch#187343",
                (
                    "Crash on a Radeon R9700 with 2.12 and rocm7.2; AMD could not reproduce it with the same board "
                    "and suspects the kernel driver."
                ),
            ),
            issue(
                "ROCm/rocm-systems#9360",
                (
                    "On RDNA 4 the runtime reports an allocation granularity "
                    "of 4 KB, which causes faults; proposes 2 MB."
                ),
            ),
            issue(
                "pytorch/pytorch#177974",
                ("Enables expandable segments on ROCm; AMD's 2.11 branch includes the change as ROCm/pytorch#3106."),
            ),
            issue(
                "pytorch/pytorch#179930",
                (
                    "Enables expandable segments only from ROCm 7.0 on, and skips a test because "
                    "recovery after a failed capture does not work with them (#179911)."
                ),
            ),
            issue(
                "pytorch/pytorch#123548",
                (
                    "Together with max_split_size_mb, reserved memory grows without bound (reproduced on ROCm 7.14, "
                    "torch 2.12)."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="expandable-segments-break-custom-allreduce",
        title="expandable_segments:True breaks custom all-reduce during graph capture",
        when=on(Platform.ROCM, Platform.CUDA),
        severity=Severity.WARNING,
        symptom=(
            'Start-up with tensor parallelism fails with "invalid argument" in custom_all_reduce during '
            "capture, or every all-reduce needs an extra copy."
        ),
        fix=(
            "Remove expandable_segments:True, or use --disable-custom-all-reduce. amd-aiter from August 2026 first copies the data into memory from hipMalloc, instead of failing."
        ),
        verify=(
            "Start with tensor parallelism 2 and graphs on. The capture must finish, and a profile must show "
            "no copyBuffer before each all-reduce."
        ),
        status="fixed in amd-aiter (#4621, merged August 2026) at the cost of a copy; open in vLLM on CUDA",
        variables=(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
        packages=("amd-aiter", "vllm"),
        undecidable="needs two GPUs and a serving framework",
        evidence=(
            issue(
                "ROCm/aiter#4174",
                ("hipIpcGetMemHandle fails for memory from expandable segments (MI300X, ROCm 7.2, torch 2.11)."),
            ),
            issue("ROCm/aiter#4621", "The merged fix: a pool from plain hipMalloc, and a copy into it."),
            issue(
                "vllm-project/vllm#57481", "Measures the cost: one copy per all-reduce, about 1.2 ms per forward pass."
            ),
            issue("vllm-project/vllm#42609", "The same failure on NVIDIA; it disappears without expandable segments."),
        ),
    ),
    KnownProblem(
        id="ipc-memory-leak",
        title="GPU memory shared between processes (IPC) is never freed on ROCm 7.2",
        when=on(Platform.ROCM, rocm="7.2.0..7.2.4", archs=("gfx9",)),
        severity=Severity.WARNING,
        symptom=(
            "After a buffer was exported by IPC, hipFree reports success but the GPU memory stays allocated. "
            "Training and serving on the same GPU lose gigabytes per step until out of memory."
        ),
        fix=(
            "Set HSA_ENABLE_IPC_MODE_LEGACY=1 on CDNA GPUs (MI200, MI300, MI350), or use ROCm 7.1 or a "
            "version after 7.2.x. Do not set the variable on RDNA: see legacy-ipc-mode-breaks-rdna."
        ),
        verify=(
            "Share and free a 256 MB tensor between two processes 50 times; free memory as shown by `amd-smi` "
            "must not shrink."
        ),
        status="fixed on the development branch, in no 7.2.x release as of 2026-09",
        evidence=(
            issue(
                "radixark/miles#1707",
                (
                    "A test in a loop leaks 256 MB per iteration on 7.2.0 to 7.2.4 and nothing on 7.0 "
                    "and 7.1; HSA_ENABLE_IPC_MODE_LEGACY=1 fixes it."
                ),
            ),
            issue(
                "ROCm/rocm-libraries#6266",
                ("The runtime call keeps memory pinned after hipFree on 7.2.1; the issue title names 7.0 and later."),
            ),
            issue("ROCm/ATOM#2218", "ATOM's images set the variable for this reason."),
            source(
                "sglang docker/rocm.Dockerfile 004ae46 HSA_ENABLE_IPC_MODE_LEGACY",
                "Sets it for the 7.2.4 images, with the note that it was checked on 7.2.1 and 7.2.4.",
            ),
        ),
    ),
    KnownProblem(
        id="legacy-ipc-mode-breaks-rdna",
        title="HSA_ENABLE_IPC_MODE_LEGACY=1 breaks IPC on RDNA GPUs",
        when=on(Platform.ROCM, archs=("gfx11", "gfx12")),
        severity=Severity.WARNING,
        symptom=(
            'hipIpcGetMemHandle returns "invalid argument" on every GPU, so custom all-reduce and RCCL\'s peer '
            "path fail. The vLLM ROCm images set the variable."
        ),
        fix="Unset HSA_ENABLE_IPC_MODE_LEGACY, or set it to 0, on gfx11 and gfx12.",
        verify=(
            "Call hipIpcGetMemHandle on a new allocation (the issue below contains a ten-line "
            "program), or start with tensor parallelism 2."
        ),
        status="open as of 2026-09",
        variables=("HSA_ENABLE_IPC_MODE_LEGACY=1",),
        evidence=(
            issue(
                "ROCm/rocm-systems#2209",
                "Reproduced on four R9700 with 7.0.0, 7.2.1 and 7.2.3: fails with the variable, works without.",
            ),
        ),
    ),
    KnownProblem(
        id="scratch-reclaim-slows-rccl",
        title="RCCL collectives are 5 to 10 times slower on MI200: scratch memory is freed after each kernel",
        when=on(Platform.ROCM, rocm="7.13..", archs=("gfx90a",)),
        severity=Severity.WARNING,
        symptom="Small collectives (below 16 MB) take far longer than on older ROCm.",
        fix="Set HSA_NO_SCRATCH_RECLAIM=1 before the process starts.",
        verify="Run all_reduce of 1 MB 1,000 times with and without the variable.",
        status=("documented by AMD for gfx90a from ROCm 7.13 on; the variable is not needed on gfx942 and gfx950"),
        undecidable="needs two GPUs",
        evidence=(
            issue(
                "ROCm/rocm-systems#8657",
                "AMD's usage tip for MI250X with ROCm 7.13 and later; MI300 and MI355 do not need it.",
            ),
            issue("ROCm/rocm-systems#11472", "RCCL's change log lists it as a known issue."),
        ),
    ),
    KnownProblem(
        id="rccl-requires-no-scratch-reclaim",
        title="RCCL does not start without HSA_NO_SCRATCH_RECLAIM=1",
        when=on(Platform.ROCM, rocm="6.4..7.12"),
        severity=Severity.INFO,
        symptom=(
            'The first collective fails with "HSA_NO_SCRATCH_RECLAIM=1 must be set ... This error is '
            'fatal", or vLLM on several GPUs hangs if it was not started from its container image.'
        ),
        fix="export HSA_NO_SCRATCH_RECLAIM=1 before starting. The images of vLLM and SGLang already set it.",
        verify="`python -m torch.distributed.run --nproc-per-node 2` with one all_reduce succeeds.",
        status=(
            "intended behaviour of RCCL since August 2025; whether the error occurs depends on the "
            "versions of runtime and firmware"
        ),
        undecidable="needs two GPUs",
        evidence=(
            issue(
                "ROCm/rccl#1867",
                (
                    "RCCL returns an error if the variable is missing, because RCCL was measured to be "
                    "twice as slow without it on ROCm 6.4."
                ),
            ),
            issue("ROCm/ATOM#913", "Shows the error message on MI35x with runtime 7.2.53211 and firmware 14."),
            issue(
                "vllm-project/vllm#39111",
                (
                    "vLLM hangs for users who do not have the variable from the "
                    "image; it is needed on ROCm 7.1 and later."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="gfx1151-wrong-register-count",
        title="Strix Halo (gfx1151) crashes under load on ROCm before 7.2",
        when=on(Platform.ROCM, rocm="6.0..7.1", archs=("gfx1151",)),
        severity=Severity.CRITICAL,
        symptom=(
            "Kernels with many registers crash or hang the GPU on gfx1151, because the runtime assumes a "
            "wrong register count."
        ),
        fix=(
            "Use ROCm 7.2 or a later stable release, or of the preview releases 7.11 or later, and a Linux kernel that exports "
            "the context sizes, such as Ubuntu's OEM kernel 1018 or newer."
        ),
        verify="Check the new versions with `rocminfo`, then run for ten minutes the workload that crashed before.",
        status="fixed in ROCm 7.2 and 7.11, plus a kernel change",
        undecidable="it appears only after minutes of load",
        evidence=(
            issue(
                "ROCm/TheRock#2991",
                "AMD lists 6.x, 7.0.x, 7.1.x, 7.9 and 7.10 as affected, and the fixes in runtime and kernel.",
            ),
        ),
    ),
    KnownProblem(
        id="gfx-version-override",
        title="HSA_OVERRIDE_GFX_VERSION makes the GPU appear as another architecture",
        when=on(Platform.ROCM),
        severity=Severity.WARNING,
        symptom=(
            "Illegal memory access at address nil, memory faults, or kernels of another architecture "
            "are used. The GPU is listed with an architecture that it does not have."
        ),
        fix=(
            "Unset HSA_OVERRIDE_GFX_VERSION on GPUs that the build supports. AMD uses the variable for "
            "debugging and does not support it otherwise."
        ),
        verify=(
            "`rocminfo | grep gfx` shows the real architecture, and a 1024 x 1024 matmul equals the result of the CPU."
        ),
        status="intended behaviour",
        variables=("HSA_OVERRIDE_GFX_VERSION",),
        covered_by="ENV001",
        evidence=(
            issue(
                "ROCm/legacy-rocm-build#5238",
                (
                    "An MI210 that was listed as gfx1030 had memory faults until a forgotten override "
                    "was removed; AMD states that the variable is for internal debugging."
                ),
            ),
            issue(
                "ROCm/legacy-rocm-build#5245",
                "In another report of illegal memory access, AMD advises to remove the override.",
            ),
        ),
    ),
    KnownProblem(
        id="hipblaslt-forced-on-consumer-gpu",
        title="TORCH_BLAS_PREFER_HIPBLASLT=1 crashes consumer GPUs",
        when=on(Platform.ROCM, archs=("gfx11", "gfx12")),
        severity=Severity.CRITICAL,
        symptom=("Matmuls hang the display and reset the GPU on gfx1150; on gfx1200 an integer matmul segfaults."),
        fix=(
            "Unset the variable, or set TORCH_BLAS_PREFER_HIPBLASLT=0. For Linear layers on older "
            "GPUs, set DISABLE_ADDMM_CUDA_LT=1."
        ),
        verify="100 fp32 matmuls of 4096 x 4096 finish without a ring timeout in dmesg.",
        status="open for gfx1150 as of 2026-09, closed for gfx1200",
        variables=("TORCH_BLAS_PREFER_HIPBLASLT=1",),
        covered_by="ENV001",
        evidence=(
            issue(
                "ROCm/legacy-rocm-build#6271",
                "Every run with the variable crashes the driver on a Radeon 890M, ROCm 7.1 to 7.2.3.",
            ),
            issue(
                "ROCm/rocm-libraries#5205",
                "Segmentation fault in hipblasLtMatmul on gfx1200 instead of a not-supported status.",
            ),
            issue(
                "pytorch/pytorch#138067", ("On older GPUs torch overrides the choice; shows how to turn hipBLASLt off.")
            ),
        ),
    ),
    KnownProblem(
        id="second-libamd-smi",
        title="torch.cuda.device_count() is 0 on an AMD machine: two copies of libamd_smi in one process",
        when=on(Platform.ROCM),
        severity=Severity.WARNING,
        symptom=(
            'torch.cuda.device_count() is 0 and every access fails with "Invalid device id", although '
            "rocminfo and hipGetDeviceCount find the GPU."
        ),
        fix=(
            "Uninstall the amdsmi package that came from PyPI, or replace "
            "_rocm_sdk_devel/lib/libamd_smi.so by a link to the copy in _rocm_sdk_core. Use amdsmi "
            "only in a child process."
        ),
        verify=(
            '`python -c "import torch; print(torch.cuda.device_count(), torch._C._cuda_getDeviceCount())"` '
            "prints the same number twice."
        ),
        status="closed in pytorch, open in ROCm as of 2026-09; torch 2.15.0 still accepts a count of 0",
        packages=("rocm-sdk-core", "rocm-sdk-devel"),
        covered_by="SYS006",
        evidence=(
            issue("pytorch/pytorch#186516", "Explains the conflict, and how torch counts GPUs with amdsmi."),
            issue(
                "ROCm/legacy-rocm-build#6340",
                "The same problem, reported to AMD and still open, with a reproducer in a clean environment.",
            ),
            issue(
                "ROCm/rocm-systems#7643",
                "Preloading librocm_smi64 globally is enough to make amdsmi return no handles (7.14 nightly).",
            ),
            issue(
                "sgl-project/sglang#35319",
                "Found in a container image: the devel package of the SDK contains a second, identical copy.",
            ),
            source(
                "torch 2.12.1 to 2.15.0 torch/cuda/__init__.py device_count",
                "Falls back to HIP only if amdsmi returns a negative number, not for 0.",
            ),
        ),
    ),
    KnownProblem(
        id="cuda-torch-on-amd-machine",
        title="CUDA torch installed on an AMD machine: torch finds no GPU",
        when=on(Platform.CUDA, Platform.CPU),
        severity=Severity.INFO,
        symptom=(
            "On a machine with AMD GPUs torch.version.hip is None and no device is found, usually "
            "because a pip install replaced torch by the build from PyPI."
        ),
        fix=(
            "Reinstall torch from AMD's or pytorch's ROCm index. To prevent this in future, write the "
            "versions of torch, torchvision and torchaudio into a file and set PIP_CONSTRAINT to its "
            "path: pip then reports an error instead of replacing them."
        ),
        verify='`python -c "import torch; print(torch.version.hip)"` prints a version.',
        status="not a bug: PyPI has no ROCm builds of torch",
        covered_by="SYS001",
        evidence=(
            source(
                "sglang docker/rocm.Dockerfile 004ae46 PIP_CONSTRAINT",
                ("The images use such a constraint file, and assert torch.version.hip after installing Triton."),
            ),
            issue(
                "AMDResearch/Ryzers#80",
                "AMD's robotics images detect a CUDA torch installed by dependencies and reinstall the ROCm one.",
            ),
            issue("AMD-Ecosystem/flashinfer#269", "Adds a build check that the installed torch is a HIP build."),
        ),
    ),
    KnownProblem(
        id="numa-balancing-on",
        title="Automatic NUMA balancing causes stalls of several milliseconds",
        when=on(Platform.ROCM, Platform.CUDA),
        severity=Severity.INFO,
        symptom="Launch latency occasionally rises by 5 to 30 ms, and the throughput of multi-GPU jobs varies.",
        fix="sudo sysctl kernel.numa_balancing=0 on the host.",
        verify="`cat /proc/sys/kernel/numa_balancing` prints 0.",
        status="AMD advises to turn it off; a request for a check in amdsmi is open as of 2026-09",
        covered_by="SYS004",
        evidence=(
            issue(
                "ROCm/amdsmi#81",
                ("A request from AMD that amdsmi check the flag, with links to the ROCm tuning pages."),
            ),
            issue(
                "deepseek-ai/DeepEP#624",
                "Measures the kernel's balancing work at up to 31 ms per call on an inference server.",
            ),
            issue("ROCm/rccl#696", "RCCL warns if the flag is on."),
        ),
    ),
    KnownProblem(
        id="hip-graph-kernels-missing-from-profiles",
        title="Kernels of HIP graphs are missing from torch.profiler traces",
        when=on(Platform.ROCM, rocm="7.2.."),
        severity=Severity.WARNING,
        symptom=(
            "A trace of a replayed HIP graph contains a part of its kernels or none, while the same work in eager is complete. "
            "It happens with a newer ROCm too, because the torch wheel brings its own older HIP and roctracer libraries in "
            "torch/lib, and its RPATH has precedence over LD_LIBRARY_PATH."
        ),
        fix=(
            "Use a torch wheel that was built with ROCm 7.2.2 or later, or start the program with LD_PRELOAD set to "
            "libamdhip64.so and libroctracer64.so of the installed ROCm 7.2.2 or later."
        ),
        verify="Profile ten replays of a graph with a known number of kernels, and count the kernels in the trace.",
        status="fixed in ROCm 7.2.2; wheels with older bundled libraries are still affected as of 2026-08",
        evidence=(
            issue(
                "sgl-project/sglang#35390",
                "448 of 512 kernels recorded on MI300X and MI355X with the wheel's libraries, 512 with those of ROCm 7.2.4.",
            ),
            issue("ROCm/ROCm#6102", "The tracer drops kernel events of graph launches; fixed in 7.2.2."),
        ),
    ),
    KnownProblem(
        id="hipblaslt-jit-stall-on-rdna",
        title="The first compiled step stalls for minutes in hipBLASLt on RDNA GPUs, in every process",
        when=on(Platform.ROCM, archs=("gfx10", "gfx11", "gfx12")),
        severity=Severity.WARNING,
        symptom=(
            "The first call of a compiled model seems frozen for minutes and prints Composable Kernel descriptors such as "
            "a_grid_desc_m_ak_container_. hipBLASLt builds kernels for matmul shapes that it has none for, and keeps them "
            "for one process only."
        ),
        fix="Set DISABLE_ADDMM_HIP_LT=1 before the start: torch then uses rocBLAS, which has kernels for every shape.",
        verify="Start twice and time the first call of the compiled model: both take seconds.",
        status="open in hipBLASLt as of 2026-07",
        evidence=(
            issue(
                "unslothai/unsloth-zoo#921",
                "Explains the cause on gfx1151 and sets the variable on RDNA; eager code does not show it.",
            ),
        ),
    ),
    KnownProblem(
        id="launches-from-a-distant-numa-node",
        title="Graph launches have gaps when the process runs on CPUs far from the GPU",
        when=on(Platform.ROCM),
        severity=Severity.INFO,
        symptom=(
            "The time between the launches of a graph, or between its kernels, varies from start to start. The process runs "
            "on CPUs of another NUMA node than the GPU's, so that every packet and every index crosses the link between them."
        ),
        fix=(
            "Bind the process to the GPU's NUMA node, e.g. numactl --cpunodebind=0 --membind=0 python serve.py. "
            "rocm-smi --showtoponuma lists the node of each GPU."
        ),
        verify="`rocsolid trace` of the bound and the unbound process: compare the idle time between kernels.",
        status="newer HIP runtimes prefer the GPU's node unless the program has set its own CPU mask",
        undecidable="needs a machine with several NUMA nodes and a trace of a real workload",
        evidence=(
            issue(
                "ROCm/rocm-systems#6134",
                "The runtime places queues and graph packets near the GPU, and AMD_CPU_AFFINITY is on by default.",
            ),
            issue(
                "ROCm/rocm-systems#6855", "Adds AMD_GRAPH_CPU_AFFINITY, which binds the thread for each graph launch."
            ),
        ),
    ),
)
