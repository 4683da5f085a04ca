"""Drivers, allocators, packages and hosts."""

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="expandable-segments-on-rocm",
        title="expandable_segments hangs or faults on ROCm",
        when=on(Platform.ROCM, torch="2.11.."),
        severity=Severity.CRITICAL,
        symptom=(
            'With the setting on, a plain tensor.to("cuda") of 2 GB can hang in the driver for good, RDNA 4 can'
            " fault, and recovery after a failed capture does not work. Before torch 2.11 the setting is simply"
            " ignored on ROCm."
        ),
        fix=(
            "Remove expandable_segments:True from PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF and "
            "PYTORCH_ALLOC_CONF. If it must stay, never together with max_split_size_mb."
        ),
        verify=(
            "`python -c \"import torch; torch.zeros(1<<30, dtype=torch.float16).to('cuda'); print('ok')\"` prints"
            " ok within seconds."
        ),
        status="open as read 2026-09 (hang on a 2.14 nightly with rocm7.2); one crash report closed as not reproducible",
        variables=(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
        covered_by="ENV001",
        evidence=(
            issue(
                "pytorch/pytorch#192259",
                "Uninterruptible hang in hsaKmtMemoryVaMap on 2.14.0.dev with rocm7.2; gone without the setting.",
            ),
            issue(
                "pytorch/pytorch#187343",
                "Crash on a Radeon R9700 with 2.12 and rocm7.2; AMD with the same board could not reproduce it and suspects the kernel driver.",
            ),
            issue("ROCm/rocm-systems#9360", "RDNA 4 reports a 4 KB granularity that faults; proposes 2 MB."),
            issue(
                "pytorch/pytorch#177974",
                "Enables the feature on ROCm; AMD's 2.11 branch took it in as ROCm/pytorch#3106.",
            ),
            issue(
                "pytorch/pytorch#179930",
                "Gates it on ROCm 7.0 and skips a test because recovery after a failed capture does not work with it (#179911).",
            ),
            issue(
                "pytorch/pytorch#123548",
                "Together with max_split_size_mb reserved memory grows without bound (reproduced on ROCm 7.14, torch 2.12).",
            ),
        ),
    ),
    KnownProblem(
        id="expandable-segments-break-custom-allreduce",
        title="expandable_segments makes graph buffers unexportable to custom all-reduce",
        when=on(Platform.ROCM, Platform.CUDA),
        severity=Severity.WARNING,
        symptom=(
            'Tensor-parallel start-up fails with "invalid argument" in custom_all_reduce during capture, or '
            "every all-reduce pays an extra copy."
        ),
        fix=(
            "Switch expandable_segments off, or --disable-custom-all-reduce; amd-aiter from August 2026 stages "
            "through plain memory instead of failing."
        ),
        verify=(
            "Start with tensor parallelism 2 and graphs on; capture must finish, and a profile shows no "
            "copyBuffer before each all-reduce."
        ),
        status="fixed in amd-aiter (#4621, merged August 2026) at the price of a copy; open in vLLM on CUDA",
        variables=(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
            "PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
        packages=("amd-aiter", "vllm"),
        evidence=(
            issue("ROCm/aiter#4174", "hipIpcGetMemHandle fails on such pointers, MI300X, ROCm 7.2, torch 2.11."),
            issue("ROCm/aiter#4621", "The merged fix with a plain hipMalloc pool and a forced copy in."),
            issue(
                "vllm-project/vllm#57481", "Counts the cost: one copy per all-reduce, about 1.2 ms per forward pass."
            ),
            issue("vllm-project/vllm#42609", "The same failure on NVIDIA, gone without expandable segments."),
        ),
    ),
    KnownProblem(
        id="ipc-memory-leak",
        title="Memory shared between processes is never given back by ROCm 7.2",
        when=on(Platform.ROCM, rocm="7.2.0..7.2.4", archs=("gfx9",)),
        severity=Severity.WARNING,
        symptom=(
            "After a buffer was exported by IPC, hipFree reports success but the device memory stays taken; "
            "colocated training and serving lose gigabytes per step until out of memory."
        ),
        fix=(
            "HSA_ENABLE_IPC_MODE_LEGACY=1 on CDNA parts (MI200, MI300, MI350), or ROCm 7.1 or a later line than"
            " 7.2. Do not set it on RDNA, see legacy-ipc-mode-breaks-rdna."
        ),
        verify=(
            "Share and free a 256 MB tensor between two processes 50 times; free memory by `amd-smi` must stay level."
        ),
        status="fixed on the development branch, in no 7.2.x release as read 2026-09",
        evidence=(
            issue(
                "radixark/miles#1707",
                "Loop test leaks 256 MB per round on 7.2.0 to 7.2.4, flat on 7.0 and 7.1; the legacy mode fixes it.",
            ),
            issue(
                "ROCm/rocm-libraries#6266",
                "The runtime call pins memory after hipFree on 7.2.1; its title says 7.0 and later.",
            ),
            issue("ROCm/ATOM#2218", "ATOM's images set the variable for this reason."),
            source(
                "sglang docker/rocm.Dockerfile 004ae46 HSA_ENABLE_IPC_MODE_LEGACY",
                "Sets it for the 7.2.4 images and notes that it was checked on 7.2.1 and 7.2.4.",
            ),
        ),
    ),
    KnownProblem(
        id="legacy-ipc-mode-breaks-rdna",
        title="HSA_ENABLE_IPC_MODE_LEGACY=1 breaks IPC on RDNA cards",
        when=on(Platform.ROCM, archs=("gfx11", "gfx12")),
        severity=Severity.WARNING,
        symptom=(
            'hipIpcGetMemHandle returns "invalid argument" on every GPU, so custom all-reduce and RCCL\'s peer '
            "path fail; the vLLM ROCm images set the variable."
        ),
        fix="Unset HSA_ENABLE_IPC_MODE_LEGACY (or =0) on gfx11 and gfx12.",
        verify=(
            "Call hipIpcGetMemHandle on a fresh allocation (ten-line program in the thread), or start with "
            "tensor parallelism 2."
        ),
        status="open as read 2026-09",
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
        title="Scratch reclaim slows collectives 5 to 10 times on MI200",
        when=on(Platform.ROCM, rocm="7.13..", archs=("gfx90a",)),
        severity=Severity.WARNING,
        symptom="Small collectives (below 16 MB) take far longer than on older ROCm.",
        fix="HSA_NO_SCRATCH_RECLAIM=1 before the process starts.",
        verify="Run all_reduce of 1 MB 1,000 times with and without the variable.",
        status="documented by AMD for gfx90a from ROCm 7.13 on; not needed on gfx942 and gfx950 there",
        evidence=(
            issue(
                "ROCm/rocm-systems#8657",
                "AMD's usage tip for MI250X with ROCm 7.13 and later, and that MI300 and MI355 do not need it.",
            ),
            issue("ROCm/rocm-systems#11472", "The same as a known issue in RCCL's change log."),
        ),
    ),
    KnownProblem(
        id="rccl-wants-no-scratch-reclaim",
        title="RCCL refuses to start unless HSA_NO_SCRATCH_RECLAIM=1",
        when=on(Platform.ROCM, rocm="6.4..7.12"),
        severity=Severity.INFO,
        symptom=(
            'The first collective ends with "HSA_NO_SCRATCH_RECLAIM=1 must be set ... This error is fatal", or '
            "multi-GPU vLLM hangs on a bare installation."
        ),
        fix="export HSA_NO_SCRATCH_RECLAIM=1 before starting; images of vLLM and SGLang set it already.",
        verify="`python -m torch.distributed.run --nproc-per-node 2` with one all_reduce succeeds.",
        status="by design of RCCL since August 2025; depends on runtime and firmware",
        evidence=(
            issue(
                "ROCm/rccl#1867",
                "RCCL returns an error when the variable is missing, after a twofold slow-down was measured on 6.4.",
            ),
            issue("ROCm/ATOM#913", "The fatal message on MI35x with runtime 7.2.53211 and firmware 14."),
            issue(
                "vllm-project/vllm#39111", "Users without the image's setting meet hangs; needed on ROCm 7.1 and later."
            ),
        ),
    ),
    KnownProblem(
        id="gfx1151-wrong-register-count",
        title="Strix Halo crashes under load on ROCm before 7.2",
        when=on(Platform.ROCM, rocm="6.0..7.1", archs=("gfx1151",)),
        severity=Severity.CRITICAL,
        symptom=(
            "Kernels with many registers crash or hang the GPU on gfx1151 because the runtime assumes a wrong "
            "register count."
        ),
        fix=(
            "ROCm 7.2 or later (or 7.11 or later of the preview line) and a kernel that exports the context "
            "sizes, such as Ubuntu's OEM kernel 1018 or newer."
        ),
        verify="`rocminfo` of the new stack, then run the workload that crashed for ten minutes.",
        status="fixed in ROCm 7.2 and 7.11, plus a kernel change",
        evidence=(
            issue(
                "ROCm/TheRock#2991",
                "AMD lists 6.x, 7.0.x, 7.1.x, 7.9 and 7.10 as affected and the fixes in runtime and kernel.",
            ),
        ),
    ),
    KnownProblem(
        id="gfx-version-override",
        title="HSA_OVERRIDE_GFX_VERSION makes the GPU pretend to be another one",
        when=on(Platform.ROCM),
        severity=Severity.WARNING,
        symptom=(
            "Illegal memory access at address nil, faults or wrong code paths; the device shows up as an "
            "architecture it is not."
        ),
        fix=(
            "Unset HSA_OVERRIDE_GFX_VERSION on GPUs that the build supports; it is a debugging aid of AMD's, "
            "not a supported setting."
        ),
        verify="`rocminfo | grep gfx` shows the real architecture, and a 1024 x 1024 matmul equals the CPU's.",
        status="by design",
        variables=("HSA_OVERRIDE_GFX_VERSION",),
        covered_by="ENV001",
        evidence=(
            issue(
                "ROCm/legacy-rocm-build#5238",
                "An MI210 shown as gfx1030 faulted until a forgotten override was removed; AMD says it is for internal debugging.",
            ),
            issue(
                "ROCm/legacy-rocm-build#5245",
                "AMD asks for the removal of the override in another illegal-access report.",
            ),
        ),
    ),
    KnownProblem(
        id="hipblaslt-forced-on-consumer-gpu",
        title="TORCH_BLAS_PREFER_HIPBLASLT=1 crashes consumer GPUs",
        when=on(Platform.ROCM, archs=("gfx11", "gfx12")),
        severity=Severity.CRITICAL,
        symptom=(
            "Matrix products hang the display and reset the GPU on gfx1150; on gfx1200 an integer matmul segfaults."
        ),
        fix=(
            "Unset the variable or set TORCH_BLAS_PREFER_HIPBLASLT=0; DISABLE_ADDMM_CUDA_LT=1 for Linear layers"
            " on old cards."
        ),
        verify="100 fp32 products of 4096 x 4096 run through without a ring timeout in dmesg.",
        status="open for gfx1150 as read 2026-09, closed for gfx1200",
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
                "pytorch/pytorch#138067", "Older cards: torch overrides the choice, and how to switch the Lt path off."
            ),
        ),
    ),
    KnownProblem(
        id="second-libamd-smi",
        title="Two copies of libamd_smi in one process: torch sees no GPU",
        when=on(Platform.ROCM),
        severity=Severity.WARNING,
        symptom=(
            'torch.cuda.device_count() is 0 and every access says "Invalid device id", while rocminfo and '
            "hipGetDeviceCount see the card."
        ),
        fix=(
            "Uninstall the amdsmi package from PyPI, or make both names the same file (link "
            "_rocm_sdk_devel/lib/libamd_smi.so to the copy in _rocm_sdk_core). Query amdsmi only in a child "
            "process."
        ),
        verify=(
            '`python -c "import torch; print(torch.cuda.device_count(), torch._C._cuda_getDeviceCount())"` '
            "prints the same number twice."
        ),
        status="closed in pytorch, open in ROCm as read 2026-09; torch 2.15.0 still trusts a count of 0",
        packages=("rocm-sdk-core", "rocm-sdk-devel"),
        covered_by="SYS006",
        evidence=(
            issue("pytorch/pytorch#186516", "Diagnosis of the clash and of torch's path through amdsmi."),
            issue(
                "ROCm/legacy-rocm-build#6340",
                "The same, open on AMD's side, with a reproducer from a clean environment.",
            ),
            issue(
                "ROCm/rocm-systems#7643",
                "Preloading librocm_smi64 globally is enough to make amdsmi return no handles (7.14 nightly).",
            ),
            issue(
                "sgl-project/sglang#35319",
                "An image was caught with it; a second, identical copy came with the SDK's devel tree.",
            ),
            source(
                "torch 2.12.1 to 2.15.0 torch/cuda/__init__.py device_count",
                "Falls back to HIP only when amdsmi returns a negative number, never for 0.",
            ),
        ),
    ),
    KnownProblem(
        id="cuda-torch-on-amd-machine",
        title="A CUDA build of torch has replaced the ROCm build",
        when=on(Platform.CUDA, Platform.CPU),
        severity=Severity.INFO,
        symptom=(
            "On a machine with AMD GPUs torch.version.hip is None and no device is found, usually after a pip "
            "install that pulled torch from PyPI."
        ),
        fix=(
            "Reinstall from AMD's or pytorch's ROCm index and pin it: a file with torch, torchvision and "
            "torchaudio versions in PIP_CONSTRAINT turns the next accident into an error."
        ),
        verify='`python -c "import torch; print(torch.version.hip)"` prints a version.',
        status="by design of PyPI (it holds no ROCm builds)",
        covered_by="SYS001",
        evidence=(
            source(
                "sglang docker/rocm.Dockerfile 004ae46 PIP_CONSTRAINT",
                "The images keep a constraint file for exactly this accident and assert torch.version.hip after installing Triton.",
            ),
            issue(
                "AMDResearch/Ryzers#80",
                "AMD's robotics images detect a CUDA torch brought in by dependencies and put the ROCm one back.",
            ),
            issue("AMD-Ecosystem/flashinfer#269", "Adds a build check that the installed torch is a HIP build."),
        ),
    ),
    KnownProblem(
        id="numa-balancing-on",
        title="Automatic NUMA balancing adds stalls of milliseconds",
        when=on(Platform.ROCM, Platform.CUDA),
        severity=Severity.INFO,
        symptom="Launch latency jumps by 5 to 30 ms now and then; throughput of multi-GPU jobs varies.",
        fix="sudo sysctl kernel.numa_balancing=0 on the host.",
        verify="`cat /proc/sys/kernel/numa_balancing` prints 0.",
        status="advice of AMD, open request as read 2026-09",
        covered_by="SYS004",
        evidence=(
            issue("ROCm/amdsmi#81", "AMD asks its own tool to check the flag and links the ROCm tuning pages."),
            issue(
                "deepseek-ai/DeepEP#624",
                "Measures the kernel's balancing work at up to 31 ms per call on an inference server.",
            ),
            issue("ROCm/rccl#696", "RCCL warns when the flag is on."),
        ),
    ),
)
