"""What goes wrong while compiling, or in compiled code."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="mix-order-reduction-drops-gradients",
        title="Inductor loses part of a gradient when scale and shift are slices of one parameter",
        when=on(Platform.ROCM, Platform.CUDA, torch="2.10..2.14"),
        severity=Severity.WARNING,
        symptom=(
            "Compiled training of models with adaptive LayerNorm (diffusion transformers: one scale/shift table"
            " cut by chunk()) silently returns uninitialised or stale gradients for part of the table; 2.10.0 "
            "also corrupts conv-bias gradients on sm_120."
        ),
        fix=(
            "torch 2.15, or TORCHINDUCTOR_MIX_ORDER_REDUCTION=0 (config: triton.mix_order_reduction=False) "
            "before compiling."
        ),
        verify=(
            'Compare .grad of every parameter with backend="aot_eager" on the same batch, with the setting on and off.'
        ),
        status="fixed in torch 2.15.0; present in 2.10.0 to 2.14.1",
        evidence=(
            issue(
                "pytorch/pytorch#193061",
                "Bisects silently wrong gradients to 2.10, when the fusion became default; a maintainer confirms the cause and names the variable as workaround.",
            ),
            issue("pytorch/pytorch#193103", "The fix writes through the view instead of rebinding the name."),
            issue(
                "pytorch/pytorch#190796",
                "Another face in 2.10.0 on RTX 5090: conv-bias gradient wrong on every call, gone in 2.11.",
            ),
            source(
                "torch 2.14.1 and 2.15.0 torch/_inductor/codegen/simd.py _codegen_mix_order_reduction",
                "The NonOwningLayout branch with copy_() exists in 2.15.0 and in none of 2.10.0 to 2.14.1; the setting defaults to on in all of them, ROCm included.",
            ),
        ),
    ),
    KnownProblem(
        id="combo-kernels-wrong-on-rocm",
        title="Combo kernels store wrong scalars on ROCm",
        when=on(Platform.ROCM, torch="2.9..2.12"),
        severity=Severity.INFO,
        symptom=(
            "With combo_kernels=True and dynamic shapes a full reduction comes out as 0 or another wrong "
            "number, while the other outputs are right."
        ),
        fix=(
            "Leave torch._inductor.config.combo_kernels at False (the default in every release through 2.15); "
            "vLLM sets it to True in its own compile options, so check there."
        ),
        verify=(
            "Compile `lambda x: (x.mean(), x.mean(-2, keepdim=True))` with dynamic shapes and combo_kernels on,"
            " and compare with eager."
        ),
        status="closed as read 2026-09; related ROCm tests were still disabled in May 2026",
        evidence=(
            issue(
                "pytorch/pytorch#168937",
                "Names missing store masks as the cause and gives a ten-line reproducer on ROCm.",
            ),
            issue(
                "pytorch/pytorch#180018",
                "Combo-kernel tests disabled on ROCm in April 2026 and reopened in May because they still failed.",
            ),
            source(
                "torch 2.15.0 torch/_inductor/config.py combo_kernels",
                "Default is False, and there is no environment variable for it.",
            ),
        ),
    ),
    KnownProblem(
        id="triton-rdna-barrier-miscompile",
        title="AMD's Triton 3.8 builds drop a wait on RDNA 3.5: silent wrong output",
        when=on(Platform.ROCM, torch="2.11..2.13", archs=("gfx115",)),
        severity=Severity.WARNING,
        symptom=(
            "Compiled code on gfx1151 returns different, wrong values under memory pressure, call after call, "
            "with no error."
        ),
        fix=(
            "Install a Triton build that restricts the barrier change to CDNA (commit 6cdb2d05 of AMD's 3.8 "
            "branch or later), or run eager."
        ),
        verify=(
            '`python -c "import triton; print(triton.__version__)"` must not end in +git4cff872c; then run a '
            "compiled function 64 times under memory load and compare all results."
        ),
        status="fix proposed for AMD's torch 2.13 builds in September 2026 (pull request closed, outcome not visible)",
        evidence=(
            issue(
                "ROCm/pytorch#3616",
                "Describes the missing wait on gfx1151 with Triton pin 4cff872c, 63 of 63 calls differing in its stress test, and the pin that fixes it.",
            ),
        ),
    ),
    KnownProblem(
        id="triton-buffer-ops-both-ways",
        title="AMDGCN_USE_BUFFER_OPS is set by hand: it fixes one miscompile and causes another",
        when=on(Platform.ROCM),
        severity=Severity.WARNING,
        symptom=(
            "With the variable at 0, scans (cumsum, logcumsumexp) over several wavefronts are wrong on MI300; "
            "at 1, int64 indexing faulted in Triton 3.5 and a buffer store can write corrupted values."
        ),
        fix=(
            "Remove the variable and use a matching torch and Triton pair; set it for a single run only, and "
            "only with a reproducer that it fixes."
        ),
        verify=(
            "Run the failing kernel and a cumsum over 4000 columns against eager, once with and once without "
            "the variable."
        ),
        status="mixed as read 2026-09: #830 and #947 closed, #924 open",
        variables=("AMDGCN_USE_BUFFER_OPS",),
        covered_by="ENV001",
        evidence=(
            issue(
                "ROCm/triton#947",
                "Wrong associative scan on gfx942 that shows only with buffer operations switched off.",
            ),
            issue(
                "ROCm/triton#830",
                "Memory fault with int64 indexing in Triton 3.5 that goes away with buffer operations switched off.",
            ),
            issue("ROCm/triton#924", "A kernel compiles on Triton 3.6 only with buffer operations switched off."),
            issue(
                "AMD-AGI/Primus#962",
                "AMD's training stack works around a buffer-store miscompile that poisons gradients, but not by switching buffer operations off globally.",
            ),
            source(
                "triton 3.5.x to 3.8.x python/triton/knobs.py use_buffer_ops",
                "Off by default in 3.5, on by default from 3.6.",
            ),
        ),
    ),
    KnownProblem(
        id="lds-overflow-at-launch",
        title="A Triton kernel asks for more local memory than the GPU has, and fails only at launch",
        when=on(Platform.ROCM),
        severity=Severity.INFO,
        symptom=(
            '"OutOfResources: shared memory, Required: 98304, Hardware limit: 65536" at the first call of a '
            "kernel that compiled fine; configurations made for NVIDIA or gfx950 do this on gfx942 and RDNA."
        ),
        fix=("Smaller blocks or num_stages=1 for 64 KB parts (gfx90a, gfx942, gfx11, gfx12); gfx950 has 160 KB."),
        verify=(
            "`rocsolid` dry run for the target architecture, or read metadata.shared of the compiled kernel: at"
            " most 65536 (163840 on gfx950)."
        ),
        status="by design; single kernels fixed as they are found",
        evidence=(
            issue("ROCm/aiter#3257", "98304 bytes asked for on MI300X; the fix chooses blocks by an estimate."),
            issue("ROCm/aiter#4329", "65792 bytes on RDNA, 256 over the limit, confirmed on three architectures."),
            source(
                "triton 3.9 AMD backend, run without a device",
                "Kernels with 262144 bytes compile without error for gfx942 in Triton 3.9.",
            ),
        ),
    ),
    KnownProblem(
        id="config-overrides-are-context-local",
        title="Compiler settings made in one thread do not reach another",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU, torch="2.12.."),
        severity=Severity.INFO,
        symptom=(
            "Since torch 2.12 an assignment such as torch._inductor.config.max_autotune=False holds in the "
            "assigning thread only; a server that compiles in a worker thread runs with the defaults or the "
            "environment's values."
        ),
        fix=(
            "Pass settings with the function (torch.compile(..., options={...})), or assign them inside the "
            "thread that compiles."
        ),
        verify="Print the setting from within a threading.Thread right before the compile.",
        status="by design since torch 2.12",
        covered_by="CFG009",
        evidence=(
            source(
                "torch 2.11.0 and 2.12.0 torch/utils/_config_module.py _ConfigEntry.user_override",
                "A plain value up to 2.11, a ContextVar from 2.12 on.",
            ),
            measured(
                "compiler-facts-torch-2.13-cpu",
                "Assigned in the main thread, True there and False in a new thread, torch 2.13.0 CPU.",
            ),
        ),
    ),
    KnownProblem(
        id="compile-override-breaks-other-backends",
        title="TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS breaks every backend but Inductor",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU, torch="2.12.."),
        severity=Severity.WARNING,
        symptom=(
            "With the variable set, torch.compile with backend eager, aot_eager or cudagraphs fails: "
            "BackendCompilerFailed, unexpected keyword config_patches. It also beats any option given in the "
            "code."
        ),
        fix="Unset it, or set it only for a run that uses Inductor alone.",
        verify='`torch.compile(f, backend="eager")(x)` works again.',
        status="open as read 2026-11 (torch 2.12 to 2.15)",
        variables=("TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS",),
        covered_by="CFG003",
        evidence=(
            source(
                "torch 2.12.1 torch/_dynamo/output_graph.py debug_inductor_config_override",
                "The override is handed to whichever backend is called.",
            ),
            measured(
                "compiler-facts-torch-2.13-cpu",
                'backend="eager" and "aot_eager" both raise BackendCompilerFailed on torch 2.13.0 CPU with the variable set.',
            ),
        ),
    ),
    KnownProblem(
        id="frozen-weights-go-stale",
        title="Freezing bakes the weights in: later updates are ignored",
        when=on(Platform.ROCM, Platform.CUDA, Platform.CPU),
        severity=Severity.WARNING,
        symptom=(
            "With TORCHINDUCTOR_FREEZING=1 and no_grad, loading or changing weights after the first call has no"
            " effect on the compiled model."
        ),
        fix=(
            "Unset it where weights change (LoRA, RL, hot reload), or call torch._dynamo.reset() and compile "
            "again after each update."
        ),
        verify="Multiply a weight by 2 in place and compare the compiled output with eager.",
        status="by design",
        variables=("TORCHINDUCTOR_FREEZING=1",),
        covered_by="CFG001",
        evidence=(
            measured(
                "compiler-facts-torch-2.13-cpu",
                'In-place change, rebinding and a conv plus batch norm all went stale with the variable set; with options={"freezing": True} none did, because that option does not freeze the parameters.',
            ),
            source(
                "torch 2.13.0 torch/_inductor/config.py freezing, torch/_inductor/compile_fx.py",
                "Acts only while gradients are disabled; the variable moves the default.",
            ),
        ),
    ),
    KnownProblem(
        id="fp8-type-differs-by-generation",
        title="fp8 has another number format on MI300 than on every later AMD GPU",
        when=on(Platform.ROCM, archs=("gfx94", "gfx95", "gfx12")),
        severity=Severity.INFO,
        symptom=(
            "Code with torch.float8_e4m3fn fails or is emulated on gfx942, code with float8_e4m3fnuz fails on "
            "gfx950 and gfx12; reinterpreted bytes are off by a factor of two."
        ),
        fix=(
            "Choose the type by architecture: gfx94 float8_e4m3fnuz and e5m2fnuz, gfx95 and gfx12 float8_e4m3fn"
            " and e5m2. Convert checkpoints, never reinterpret them."
        ),
        verify="One scaled matmul in the chosen type against fp32 on the target GPU.",
        status="by design of the hardware",
        evidence=(
            issue(
                "ROCm/legacy-rocm-build#6019",
                "AMD quotes hipBLASLt's table: fnuz types on gfx942 only, OCP types on gfx950 and gfx12 only.",
            ),
            issue("triton-lang/triton#7186", "Triton emulates e4m3fn on gfx942 and calls it a common pitfall."),
            issue(
                "ROCm/rocm-libraries#9113",
                "fp8 tests were wrong on gfx950 because fnuz was assumed; gives both ranges (240 and 448).",
            ),
        ),
    ),
)
