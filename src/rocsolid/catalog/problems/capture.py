"""Known problems: captures that fail, hang or end the process."""

from rocsolid.model.evidence import issue, measured, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="hipblaslt-handle-in-capture",
        title="Graph capture hangs or ends the process at the first GEMM of a thread (hipBLASLt handle)",
        when=on(Platform.ROCM, torch="2.12.."),
        severity=Severity.WARNING,
        symptom=(
            'The capture never returns, or the process exits with code 1 after "operation not permitted when '
            'stream is capturing (900)" from hipblaslt.cpp. Typical when a backward pass is captured, because '
            "its GEMMs run in another thread."
        ),
        fix=(
            "Run one GEMM per thread, device and capture stream before capturing. Do the warm-up, "
            "forward and backward, on the same stream that is then passed as `torch.cuda.graph(g, "
            "stream=s)`. TORCH_BLAS_PREFER_HIPBLASLT=0 together with DISABLE_ADDMM_CUDA_LT=1 avoids "
            "hipBLASLt, but the handles of hipBLAS need the same warm-up."
        ),
        verify=(
            "Capture once in a child process with a 60 s limit (forward and backward). The warm-up was enough "
            "if the exit code is 0 and a replay equals eager."
        ),
        calls=("malloc", "thread-memset"),
        status=(
            "open in hipBLASLt as of 2026-09; torch creates the handle of the capturing thread in advance "
            "since 2.12; for other threads a fix was proposed in September 2026"
        ),
        evidence=(
            issue(
                "ROCm/rocm-libraries#11838",
                (
                    "hipblasLtCreate allocates and clears memory. If any thread of the process is "
                    "capturing, it fails and calls exit(1); seen with ROCm 10.0."
                ),
            ),
            issue(
                "pytorch/pytorch#196399",
                (
                    "Explains why the capture of a backward pass hangs: handles are pooled per thread, "
                    "device and stream, and exit() waits forever for the lock of the pool."
                ),
            ),
            issue(
                "pytorch/pytorch#179892",
                (
                    "Since this change there is one handle per stream, and torch creates the handle of "
                    "the capture stream before the capture begins (included in 2.12)."
                ),
            ),
            issue(
                "pytorch/pytorch#187745",
                (
                    "make_graphed_callables ran the warm-up on one stream and captured on another; "
                    "from torch 2.14 on it uses one stream."
                ),
            ),
            issue(
                "ROCm/TransformerEngine#644",
                "The same failure in Transformer Engine, which hangs with torch 2.12 and later.",
            ),
            issue(
                "vllm-project/vllm#53818",
                (
                    "The warm-up created state for its own stream only, so it was missing on torch's "
                    "internal capture stream; vLLM now captures on the stream of the warm-up."
                ),
            ),
            source(
                "HIP runtime 6.4.3 and 7.2.4, run against a simulated GPU",
                (
                    "With hipBLASLt, the original 6.4.3 and 7.2.4 runtimes print the same messages and "
                    "end the process if the handle is created during a capture."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="rccl-watchdog-breaks-capture",
        title="Graph capture aborts with torch.distributed: the process-group watchdog queries an event",
        when=on(Platform.ROCM, torch="..2.11", rocm="7.0..7.2.0"),
        severity=Severity.CRITICAL,
        symptom=(
            'With torch.distributed initialised, a capture aborts the process: "operation not '
            'permitted on an event last recorded in a capturing stream" or error 900 from the watchdog '
            "thread, exit code -6. It is easily mistaken for an out-of-memory error."
        ),
        fix=(
            "Use ROCm 7.2.1 or later, or torch 2.12 or later (on older ROCm, it skips the query while "
            "a capture is active). Otherwise, wait for all collectives and synchronise before the "
            "capture."
        ),
        verify=(
            "Initialise the process group, run one all_reduce, then capture 50 graphs in a row; the process "
            "must not abort."
        ),
        calls=("thread-event-query-old", "thread-event-query-captured"),
        status="fixed in ROCm 7.2.1; worked around in torch 2.12",
        evidence=(
            issue(
                "pytorch/pytorch#176251",
                (
                    "Explains that in these runtimes a hipEventQuery in another thread invalidates a "
                    "capture even in thread_local mode; the change skips the query."
                ),
            ),
            issue("pytorch/pytorch#176942", "The workaround that was merged."),
            issue(
                "pytorch/pytorch#179780",
                (
                    "Keeps the workaround only for runtimes without the fix, and states that the fix came with ROCm "
                    "7.2.1."
                ),
            ),
            issue("ROCm/rocm-systems#3380", "The 7.2.1 change log lists the corrected hipEventQuery during capture."),
            issue(
                "sgl-project/sglang#24011",
                "MI35x servers abort with this error on the ROCm 7.2.0 image; the fix is a newer base image.",
            ),
            issue(
                "ROCm/rccl#2022",
                (
                    "AMD explains that ROCm 7.0 became stricter, and that AMD_LOG_LEVEL=4 shows the call "
                    "that causes the error."
                ),
            ),
            measured(
                "capture-rules-on-hip",
                (
                    "On a simulated GPU: during a capture, hipEventQuery of an event recorded before "
                    "the capture succeeds with runtime 6.4.3. With runtime 7.2.4 it fails in the "
                    "capturing thread, and in global mode also in another thread."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="compile-inside-capture",
        title="torch.compile compiles or recompiles during a CUDA graph capture",
        when=on(Platform.ROCM, Platform.CUDA, torch="2.10..2.13"),
        severity=Severity.INFO,
        symptom=(
            'Either the error "Cannot copy between CPU and CUDA tensors during CUDA graph capture", or '
            "a silent recompile whose result becomes part of the graph. On ROCm there may be no error "
            "for the copy."
        ),
        fix=(
            "Warm up with the same shapes, dtypes and grad mode, then capture under "
            '`torch.compiler.set_stance("fail_on_recompile")`. torch 2.14 and later raise an error '
            "without this."
        ),
        verify="`TORCH_LOGS=recompiles` prints nothing between the start and the end of the capture.",
        status="raises a clear error since torch 2.14",
        check="fact:capture-silent-recompile",
        evidence=(
            issue("pytorch/pytorch#185074", "Inductor did not check for an active capture; requests such a check."),
            source(
                "torch 2.14.1 torch/_dynamo/convert_frame.py",
                "The check of is_current_stream_capturing exists in 2.14.1 and 2.15.0, not in 2.13.0 or earlier.",
            ),
            measured(
                "capture-facts-on-h200",
                (
                    "On an H200 with torch 2.11 a change of grad mode caused a recompile inside the capture without "
                    "any message."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="rng-state-read-in-capture",
        title="Reading the GPU RNG state raises an error during CUDA graph capture",
        when=on(Platform.ROCM, Platform.CUDA, torch="..2.9"),
        severity=Severity.WARNING,
        symptom=(
            '"Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture", typically from '
            "torch.compile, activation checkpointing or attention dropout inside the capture."
        ),
        fix=(
            "Use torch 2.10 or later. On older releases, compile and run once before the capture, and "
            "use checkpoint(preserve_rng_state=False) in captured code. Some guides replace "
            "torch._dynamo.convert_frame.preserve_global_state to avoid the error; from torch 2.9 on "
            "this has no effect."
        ),
        verify="Call torch.cuda.get_rng_state() inside a capture: it must not raise.",
        status="fixed in torch 2.10",
        evidence=(
            issue("pytorch/pytorch#131782", "Compiling inside a capture fails with this message on CUDA."),
            issue("pytorch/pytorch#167639", "The same error, reported in November 2025, before 2.10."),
            issue("pytorch/pytorch#83148", ("The same error from activation checkpointing in make_graphed_callables.")),
            source(
                "torch 2.9.1 and 2.10.0 libtorch_cuda.so string table",
                "The binary of 2.9.1 contains the message; 2.10.0, 2.11, 2.13 and 2.14 do not.",
            ),
            measured(
                "capture-facts-on-h200", "Getting and setting the RNG state inside a capture works on torch 2.11."
            ),
        ),
    ),
    KnownProblem(
        id="big-graph-instantiate-segfault",
        title="Segmentation fault when instantiating a HIP graph of about 20,000 nodes (stack overflow)",
        when=on(Platform.ROCM, rocm="7.0..7.13"),
        severity=Severity.WARNING,
        symptom=(
            "The process crashes with SIGSEGV in libamdhip64 when a capture ends, with thousands of identical "
            "stack frames. Typical for benchmark loops that capture many repetitions."
        ),
        fix=(
            "Keep graphs below 20,000 nodes (at most 1,000 captured repetitions), or raise the stack "
            "limit (`ulimit -s 65536`) before starting. ROCm 7.14 no longer contains the recursion."
        ),
        verify="Capture a chain of 30,000 tiny kernels in a child process; it must not crash.",
        status=(
            "fixed by rocm-systems#2876 (merged early 2026), confirmed on HIP 7.14; pytorch#155720 still shown as open"
        ),
        evidence=(
            issue(
                "ROCm/rocm-systems#2876", "Removes the two recursions that overflow the stack in hipGraphInstantiate."
            ),
            issue(
                "pytorch/pytorch#155720", ("The first report (ROCm 6.3); according to AMD the test passes on HIP 7.14.")
            ),
            issue(
                "ROCm/legacy-rocm-build#6602", "About 21,800 identical frames in libamdhip64 on MI300X, August 2026."
            ),
            issue(
                "meta-pytorch/tritonbench#1034",
                "Graph timing segfaults on MI350X with ROCm 7.2 if too many repetitions are captured.",
            ),
            source(
                "HIP runtime 6.4.3 and 7.2.4, run against a simulated GPU",
                (
                    "With an 8 MB stack, 7.2.4 instantiates a graph of 20,000 nodes and crashes with "
                    "25,000. A 64 MB stack or DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING=0 prevents the crash. "
                    "6.4.3 instantiates 40,000 nodes."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="mi350-repeated-graph-crash",
        title="Repeated graph launches crash MI350 with the ROCm 7.1 wheel",
        when=on(Platform.ROCM, rocm="7.1..7.1", archs=("gfx95",)),
        severity=Severity.CRITICAL,
        symptom=(
            "Timing or tuning loops that capture and replay many graphs end with "
            "HSA_STATUS_ERROR_INVALID_PACKET_FORMAT or a segmentation fault."
        ),
        fix=(
            "Use the rocm7.2 wheel with ROCm 7.2.4 (the libraries that fail are inside the torch "
            "package), capture at most 256 iterations per graph and synchronise between replays. "
            "Measure variants in separate processes."
        ),
        verify=(
            "With the new wheel, replay a small graph 10,000 times and capture 500 graphs in one process "
            "without a crash."
        ),
        status="worked around in helion, September 2026",
        evidence=(
            issue(
                "pytorch/helion#3471",
                "torch 2.13 with ROCm 7.1 aborts MI350 benchmark processes even with small graphs.",
            ),
            issue(
                "pytorch/helion#3628",
                ("Three failures reproduced; updating to the rocm7.2 wheel and limiting graphs and events fixes them."),
            ),
        ),
    ),
    KnownProblem(
        id="multi-stream-rccl-endcapture-segfault",
        title="Segmentation fault at the end of a multi-stream capture with RCCL collectives (ROCm 10.0)",
        when=on(Platform.ROCM, rocm="10.0..10.0"),
        severity=Severity.WARNING,
        symptom=(
            "Capturing forward and backward of FSDP crashes with SIGSEGV inside hipStreamEndCapture, even "
            "with tiny models and any stack size."
        ),
        fix=(
            "Keep collectives out of the capture, or run them only on the capture stream, until a "
            "runtime with the fix (rocm-systems#11589) is released."
        ),
        verify=(
            "Capture two Linear layers under FSDP2 at world size 2 in child processes; they must exit without an error."
        ),
        status="open as of 2026-09; fix proposed (rocm-systems#11589)",
        undecidable="needs two GPUs",
        evidence=(
            issue(
                "ROCm/rocm-systems#11369",
                "Endless recursion in libamdhip64 at the end of such a capture, ROCm 10.0, gfx950.",
            ),
            issue(
                "ROCm/rocm-systems#11589",
                (
                    "The proposed fix: the runtime keeps the streams of a capture in a linked structure, "
                    "and a cycle in it overflows the stack."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="gc-frees-triton-kernel-in-capture",
        title="Graph capture fails because a Triton kernel or an old graph is freed during the capture",
        when=on(Platform.ROCM, Platform.CUDA, torch="2.14.."),
        severity=Severity.WARNING,
        symptom=(
            '"Exception ignored in CompiledKernel.__del__ ... operation not permitted when stream is '
            'capturing", or a warning from CUDAGraph reset. The capture is invalid from then on.'
        ),
        fix=(
            "Call gc.collect() and gc.disable() before the capture and gc.enable() in finally. Keep "
            "references to every kernel and graph that could be freed: gc.disable() does not prevent "
            "that a kernel is freed when its last reference disappears. Compile and autotune before "
            "the capture."
        ),
        verify=(
            "Capture 50 times with gc.set_threshold(1) in a child process; no message about __del__ or reset "
            "may appear."
        ),
        status="open as of 2026-09; Triton's own benchmark helper disables garbage collection",
        evidence=(
            issue(
                "sgl-project/sglang#35427",
                (
                    "Reproduced on MI300X with Triton 3.7.0: freeing kernels inside a capture makes it fail; keeping "
                    "references fixes it, gc.disable() alone does not."
                ),
            ),
            issue("triton-lang/triton#9444", "Since February 2026 a garbage-collected kernel unloads its module."),
            issue("triton-lang/triton#10712", ("Triton disables garbage collection during its own graph captures.")),
            issue(
                "pytorch/pytorch#161037",
                (
                    "Since 2.9 torch no longer collects garbage before a capture, so old graphs can be "
                    "destroyed during the next capture."
                ),
            ),
            issue(
                "ROCm/ATOM#1339",
                (
                    "In ROCm/ATOM, gc.freeze() was not enough, so garbage collection is disabled during the whole capture."
                ),
            ),
            source(
                "triton 3.5.x to 3.8.x python/triton/compiler/compiler.py CompiledKernel.__del__",
                "In upstream Triton, freeing a kernel unloads its GPU module from release 3.8 on; the release branches 3.5 to 3.7 do not.",
            ),
        ),
    ),
    KnownProblem(
        id="workspace-freed-under-graph",
        title=(
            "A manual torch.cuda.CUDAGraph breaks after reduce-overhead captures in the same process (cuBLAS workspace)"
        ),
        when=on(Platform.CUDA),
        severity=Severity.INFO,
        symptom=(
            "A torch.cuda.CUDAGraph with matmuls fails with an illegal memory access or a segmentation fault, "
            'or returns wrong results, after a function compiled with mode="reduce-overhead" has run for the '
            "first time."
        ),
        fix=(
            "Capture with rs.capture, which owns its workspace memory. Or capture all graphs with only "
            "one of the two methods. Or call torch._C._cuda_clearCublasWorkspaces() right before and "
            "after your own capture, so that the workspace comes from the graph's pool."
        ),
        verify=(
            "Replay the graph before and after the first call of a function compiled with "
            'mode="reduce-overhead", with torch.cuda.synchronize() after each, and compare the results.'
        ),
        status="seen with torch 2.11; 2.13 contains the same code",
        evidence=(
            measured(
                "capture-on-h200",
                (
                    "The next replay fails: with an illegal memory access for four layers, with a "
                    "segmentation fault for eighteen."
                ),
            ),
            source(
                "torch 2.13.0 torch/_inductor/cudagraph_trees.py clear_cublas_manager",
                (
                    "Frees the workspaces of all streams before and after each recording; a graph continues to use "
                    "the one of its stream."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="miopen-not-graph-safe",
        title="MIOpen convolutions are not safe inside HIP graphs",
        when=on(Platform.ROCM),
        severity=Severity.INFO,
        symptom=(
            "Captures with convolutions fail with a MIOpen launch error, or an earlier convolution search "
            "makes a later, unrelated capture fail."
        ),
        fix=(
            "Run every convolution shape before the capture with torch.backends.cudnn.benchmark=False and "
            "deterministic=True, set MIOPEN_NAIVE_TIMEOUT=0, or keep convolutions outside the graph. For bf16 "
            "networks whose replay differs from eager, also set MIOPEN_DEBUG_CONV_GEMM=0."
        ),
        verify="Capture the convolution in a child process after warm-up and compare the replay with eager.",
        status="open as of 2026-09; a fix for the failures after a search is proposed (rocm-libraries#12265)",
        evidence=(
            issue(
                "pytorch/pytorch#188338",
                ("Transposed convolution cannot be captured on ROCm; cites AMD's page that MIOpen is not graph safe."),
            ),
            issue("pytorch/pytorch#188357", "Open proposal to exclude MIOpen convolutions from Inductor's graphs."),
            issue(
                "ROCm/rocm-libraries#12121",
                ("At a later launch MIOpen queries the stream of an earlier search, which invalidates a capture."),
            ),
            issue(
                "ROCm/rocm-libraries#12265",
                ("The proposed fix; MIOPEN_NAIVE_TIMEOUT=0 disables the code that causes the problem."),
            ),
            issue(
                "ROCm/rocBLAS#1649",
                (
                    "Wrong replay results in bf16 convolution networks, narrowed down to MIOpen's GEMM path (June "
                    "2025, closed)."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="no-conditional-nodes-on-hip",
        title="torch.cond cannot be captured on ROCm: HIP graphs have no conditional nodes",
        when=on(Platform.ROCM),
        severity=Severity.INFO,
        symptom=(
            "torch.cond or a loop on GPU data cannot be captured. Code that works on CUDA 12.4 fails, or must "
            "synchronise with the CPU."
        ),
        fix=(
            "Compute both branches and select with torch.where, or capture one graph per branch and choose on the CPU."
        ),
        verify="Run the captured function with both outcomes and compare with eager.",
        status="open feature request as of 2026-09",
        evidence=(
            issue("ROCm/hip#3905", "Requests conditional handles and lists what depends on them."),
            issue(
                "ROCm/legacy-rocm-build#6398",
                "Shows that the headers of ROCm 7.2 and the develop branch contain no such node.",
            ),
            issue(
                "pytorch/pytorch#168912",
                "torch captures torch.cond with CUDA's conditional nodes, CUDA 12.4 and later only.",
            ),
        ),
    ),
)
