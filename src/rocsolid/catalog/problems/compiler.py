"""Known problems of compiling and of compiled code."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="mix-order-reduction-drops-gradients",
        title="torch.compile returns wrong gradients when the scale and shift of a normalization are slices of one parameter",
        when=on(Platform.ROCM, Platform.CUDA, torch="2.10..2.14"),
        severity=Severity.WARNING,
        symptom=(
            "Compiled training of models with adaptive LayerNorm (diffusion transformers: one scale/shift "
            "table split by chunk()) silently returns uninitialised or stale gradients for part of the table. "
            "2.10.0 also corrupts conv-bias gradients on sm_120."
        ),
        fix=(
            "Use torch 2.15, or set TORCHINDUCTOR_MIX_ORDER_REDUCTION=0 (in Python: "
            "torch._inductor.config.triton.mix_order_reduction = False) before compiling."
        ),
        verify=(
            'Compare .grad of every parameter with backend="aot_eager" on the same batch, with the setting on and off.'
        ),
        status="fixed in torch 2.15.0; present in 2.10.0 to 2.14.1",
        evidence=(
            issue(
                "pytorch/pytorch#193061",
                (
                    "Bisects silently wrong gradients to 2.10, when the fusion became the default; a maintainer "
                    "confirms the cause and names the variable as workaround."
                ),
            ),
            issue(
                "pytorch/pytorch#193103",
                (
                    "The fix: the generated code copies the gradient into the "
                    "existing slice instead of replacing it by a new tensor."
                ),
            ),
            issue(
                "pytorch/pytorch#190796",
                (
                    "Another effect in 2.10.0 on RTX 5090: the gradient of a convolution's bias is wrong "
                    "in every call; fixed in 2.11."
                ),
            ),
            source(
                "torch 2.14.1 and 2.15.0 torch/_inductor/codegen/simd.py _codegen_mix_order_reduction",
                (
                    "The NonOwningLayout branch with copy_() exists in 2.15.0 and in none of 2.10.0 to 2.14.1; the "
                    "setting is on by default in all of them, also on ROCm."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="combo-kernels-wrong-on-rocm",
        title="combo_kernels=True returns wrong scalars on ROCm",
        when=on(Platform.ROCM, torch="2.9..2.12"),
        severity=Severity.INFO,
        symptom=(
            "With combo_kernels=True and dynamic shapes a full reduction returns 0 or another wrong number, "
            "while the other outputs are correct."
        ),
        fix=(
            "Leave torch._inductor.config.combo_kernels at False, the default in every release through "
            "2.15. vLLM sets it to True in its own compile options, so check those as well."
        ),
        verify=(
            "Compile `lambda x: (x.mean(), x.mean(-2, keepdim=True))` with dynamic shapes and combo_kernels "
            "on, and compare with eager."
        ),
        status="closed as of 2026-09; related ROCm tests were still disabled in May 2026",
        evidence=(
            issue(
                "pytorch/pytorch#168937",
                (
                    "Names the cause (the generated kernel stores without a mask) and contains a ten-line "
                    "reproducer for ROCm."
                ),
            ),
            issue(
                "pytorch/pytorch#180018",
                (
                    "Combo-kernel tests were disabled on ROCm in April 2026; the issue was reopened in May because "
                    "they still failed."
                ),
            ),
            source(
                "torch 2.15.0 torch/_inductor/config.py combo_kernels",
                "Default is False, and there is no environment variable for it.",
            ),
        ),
    ),
    KnownProblem(
        id="triton-rdna-barrier-miscompile",
        title="Compiled code returns wrong results on RDNA 3.5 with AMD's Triton 3.8 builds (missing wait)",
        when=on(Platform.ROCM, torch="2.11..2.13", archs=("gfx115",)),
        severity=Severity.WARNING,
        symptom=(
            "Under memory load, compiled code on gfx1151 returns wrong values without an error, "
            "different ones in every call."
        ),
        fix=(
            "Install a Triton build that restricts the barrier change to CDNA (commit 6cdb2d05 of AMD's 3.8 "
            "branch or later), or run in eager."
        ),
        verify=(
            '`python -c "import triton; print(triton.__version__)"` must not end in +git4cff872c. Then run a '
            "compiled function 64 times under memory load and compare all results."
        ),
        status=(
            "fix proposed for AMD's torch 2.13 builds in September 2026 (the pull request is closed; "
            "we do not know whether it was merged)"
        ),
        evidence=(
            issue(
                "ROCm/pytorch#3616",
                (
                    "Describes the missing wait on gfx1151 with Triton commit 4cff872c: in a stress "
                    "test 63 of 63 calls returned different results. Names the commit that fixes it."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="triton-buffer-ops-wrong-on-and-off",
        title="AMDGCN_USE_BUFFER_OPS: with 0 and with 1, some Triton kernels return wrong results",
        when=on(Platform.ROCM),
        severity=Severity.WARNING,
        symptom=(
            "With 0, scans (cumsum, logcumsumexp) over several wavefronts return wrong results on "
            "MI300. With 1, int64 indexing caused memory faults in Triton 3.5, and a buffer store can "
            "write corrupted values."
        ),
        fix=(
            "Unset the variable and use matching versions of torch and Triton. Set it only for a "
            "single run, and only if a test shows that it corrects the results of that run."
        ),
        verify=(
            "Run the failing kernel and a cumsum over 4000 columns, once with and once without the "
            "variable, and compare the results with eager."
        ),
        status="as of 2026-09, #830 and #947 are closed and #924 is open",
        variables=("AMDGCN_USE_BUFFER_OPS",),
        covered_by="ENV001",
        evidence=(
            issue(
                "ROCm/triton#947",
                "Wrong associative scan on gfx942 that occurs only with buffer operations turned off.",
            ),
            issue(
                "ROCm/triton#830",
                ("Memory fault with int64 indexing in Triton 3.5 that disappears with buffer operations turned off."),
            ),
            issue("ROCm/triton#924", "A kernel compiles on Triton 3.6 only with buffer operations turned off."),
            issue(
                "AMD-AGI/Primus#962",
                (
                    "In AMD's training stack a wrongly compiled buffer store corrupted gradients; the "
                    "workaround does not turn buffer operations off globally."
                ),
            ),
            source(
                "triton 3.5.x to 3.8.x python/triton/knobs.py use_buffer_ops",
                "Off by default in 3.5, on by default from 3.6.",
            ),
        ),
    ),
    KnownProblem(
        id="lds-overflow-at-launch",
        title="OutOfResources: shared memory: a Triton kernel compiles but fails at launch",
        when=on(Platform.ROCM, Platform.CUDA),
        severity=Severity.INFO,
        symptom=(
            '"OutOfResources: shared memory, Required: 98304, Hardware limit: 65536" at the first call of a '
            "kernel that compiled without error. Typical for configurations made for NVIDIA or gfx950 that "
            "run on gfx942 or RDNA."
        ),
        fix=(
            "Use smaller blocks or num_stages=1 on GPUs with 64 KB of LDS (gfx90a, gfx942, gfx11, "
            "gfx12); gfx950 has 160 KB."
        ),
        verify=(
            "Run `rocsolid dryrun` for the target architecture, or read metadata.shared of the compiled "
            "kernel: at most 65536 (163840 on gfx950)."
        ),
        status="a limit of the hardware; kernels that exceed it are fixed one by one",
        evidence=(
            issue(
                "ROCm/aiter#3257",
                (
                    "A kernel needs 98304 bytes on MI300X; the fix estimates the LDS "
                    "use and chooses block sizes that fit."
                ),
            ),
            issue(
                "ROCm/aiter#4329",
                ("A kernel needs 65792 bytes on RDNA, 256 more than the limit; confirmed on three architectures."),
            ),
            source(
                "triton 3.9 AMD backend, run without a device",
                "Kernels with 262144 bytes compile without error for gfx942 in Triton 3.9.",
            ),
        ),
    ),
    KnownProblem(
        id="config-overrides-are-context-local",
        title="torch._inductor.config set in one thread has no effect in another thread (torch 2.12 and later)",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU, torch="2.12.."),
        severity=Severity.INFO,
        symptom=(
            "Since torch 2.12 an assignment such as torch._inductor.config.max_autotune=False takes "
            "effect only in the thread that assigns it. A server that assigns settings in its main "
            "thread and compiles in a worker thread compiles with the defaults or the values from the "
            "environment."
        ),
        fix=(
            "Pass settings to torch.compile(..., options={...}), which takes effect in every thread, "
            "or assign them in the thread that compiles."
        ),
        verify="Print the setting inside a threading.Thread right before the compile.",
        status="intended behaviour since torch 2.12",
        covered_by="CFG009",
        check="fact:config-thread-local",
        evidence=(
            source(
                "torch 2.11.0 and 2.12.0 torch/utils/_config_module.py _ConfigEntry.user_override",
                "A plain value up to 2.11, a ContextVar from 2.12 on.",
            ),
            measured(
                "compiler-facts-torch-2.13-cpu",
                "max_autotune assigned True in the main thread is False in a new thread (torch 2.13.0, CPU).",
            ),
        ),
    ),
    KnownProblem(
        id="compile-override-breaks-other-backends",
        title="TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS breaks every backend except Inductor",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU, torch="2.12.."),
        severity=Severity.WARNING,
        symptom=(
            "With the variable set, torch.compile with backend eager, aot_eager or cudagraphs raises "
            "BackendCompilerFailed (unexpected keyword config_patches). The variable also overrides "
            "every option passed in the code."
        ),
        fix="Unset the variable, or set it only for a run that uses no other backend than Inductor.",
        verify='`torch.compile(f, backend="eager")(x)` works again.',
        status="open as of 2026-11 (torch 2.12 to 2.15)",
        variables=("TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS",),
        covered_by="CFG003",
        check="fact:override-variable",
        evidence=(
            source(
                "torch 2.12.1 torch/_dynamo/output_graph.py debug_inductor_config_override",
                "The override is passed to whichever backend is called.",
            ),
            measured(
                "compiler-facts-torch-2.13-cpu",
                (
                    'backend="eager" and "aot_eager" both raise BackendCompilerFailed on torch 2.13.0 CPU with the '
                    "variable set."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="frozen-weights-go-stale",
        title="TORCHINDUCTOR_FREEZING=1: weight updates after the first call are ignored",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU),
        severity=Severity.WARNING,
        symptom=(
            "With TORCHINDUCTOR_FREEZING=1 and no_grad, loading or changing weights after the first call has "
            "no effect on the compiled model."
        ),
        fix=(
            "Unset the variable if weights change (LoRA, RL, hot reload), or call "
            "torch._dynamo.reset() and compile again after each update."
        ),
        verify="Multiply a weight by 2 in place and compare the compiled output with eager.",
        status="intended behaviour",
        variables=("TORCHINDUCTOR_FREEZING=1",),
        covered_by="CFG001",
        check="fact:freezing-stale-weights",
        evidence=(
            measured(
                "compiler-facts-torch-2.13-cpu",
                (
                    "With the variable, the compiled model used the old weights after a change in "
                    "place, after assigning a new tensor, and in a convolution with batch norm. With "
                    'options={"freezing": True} it used the new weights in all three cases, because '
                    "that option does not freeze the parameters."
                ),
            ),
            source(
                "torch 2.13.0 torch/_inductor/config.py freezing, torch/_inductor/compile_fx.py",
                "Takes effect only while gradients are disabled; the variable sets the default.",
            ),
        ),
    ),
    KnownProblem(
        id="fp8-type-differs-by-generation",
        title="fp8 uses a different number format on MI300 than on later AMD GPUs",
        when=on(Platform.ROCM, archs=("gfx94", "gfx95", "gfx12")),
        severity=Severity.INFO,
        symptom=(
            "Code with torch.float8_e4m3fn fails or is emulated on gfx942; code with float8_e4m3fnuz fails on "
            "gfx950 and gfx12. Reinterpreted bytes are wrong by a factor of two."
        ),
        fix=(
            "Choose the dtype by architecture: gfx94 float8_e4m3fnuz and e5m2fnuz, gfx95 and gfx12 "
            "float8_e4m3fn and e5m2. Convert checkpoints, do not reinterpret them."
        ),
        verify="Compare one scaled matmul in the chosen dtype with fp32 on the target GPU.",
        status="a property of the hardware",
        evidence=(
            issue(
                "ROCm/legacy-rocm-build#6019",
                "AMD quotes hipBLASLt's table: fnuz types on gfx942 only, OCP types on gfx950 and gfx12 only.",
            ),
            issue(
                "triton-lang/triton#7186",
                ("On gfx942 Triton emulates e4m3fn; the thread describes this as a common mistake."),
            ),
            issue(
                "ROCm/rocm-libraries#9113",
                (
                    "fp8 tests were wrong on gfx950 because they assumed the fnuz format; lists the "
                    "largest value of both formats (240 and 448)."
                ),
            ),
        ),
    ),
)
