"""Known problems: graph replays that return wrong results or crash."""

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="hip-graph-replay-corruption",
        title="HIP graph replay returns corrupted results in about one process of five (ROCm 7.2.0 to 7.2.3)",
        when=on(Platform.ROCM, rocm="7.2.0..7.2.3", archs=("gfx94",)),
        severity=Severity.CRITICAL,
        symptom=(
            "The same program with the same inputs and seed returns correct results in most runs and garbage "
            "in others, without an error. Eager execution of the same kernels is always correct. "
            'mode="reduce-overhead" and mode="max-autotune" use HIP graphs as well.'
        ),
        fix=(
            "Avoid ROCm 7.2.0 to 7.2.3: use 7.1.1, or 7.13 or later. torch loads the libamdhip64 "
            "inside its wheel, so updating /opt/rocm alone is not enough. With an affected version, "
            "run in eager, or use a graph only after comparing a replay with eager in the same process."
        ),
        verify=(
            "Start the workload in 14 new processes, replay with changed inputs and compare each with "
            "eager. All 14 must match: if one process in five returns wrong results, 14 correct "
            "processes mean about 95 % confidence. `rocsolid probe` reports the version of the loaded "
            "libamdhip64."
        ),
        status="open as of 2026-09; according to reports, 7.0, 7.1.1 and 7.13 are not affected",
        evidence=(
            issue(
                "ROCm/clr#279",
                (
                    "Reports the corruption on MI300X with ROCm 7.2.0 to 7.2.3; clr 7.1.1, ROCm 7.0 "
                    "and 7.13 are not affected. For each version it lists how many of five new "
                    "processes returned wrong results."
                ),
            ),
            issue(
                "vllm-project/vllm#46386",
                (
                    "vLLM runs one ROCm test in eager for this reason. When only libamdhip64 was "
                    "exchanged, 7.1.1 returned correct results and 7.2.0, 7.2.2 and 7.2.3 wrong ones. "
                    "The workaround is to be removed with ROCm 7.14."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="shared-graph-pool-corruption",
        title="Several HIP graphs in one memory pool corrupt each other's results",
        when=on(Platform.ROCM, rocm="7.2..7.13", archs=("gfx94", "gfx95")),
        severity=Severity.WARNING,
        symptom=(
            "Graphs captured into one shared pool (for example one per batch size) are correct for a few "
            "steps and then return wrong values. With one pool per graph, or with a single graph, the results "
            "are correct."
        ),
        fix=(
            "Give each graph its own pool: pass no `pool=` to torch.cuda.graph, or use one "
            "`torch.cuda.graph_pool_handle()` per bucket. In ROCm/ATOM, leave ATOM_PER_BUCKET_POOL at its default. "
            "This reserves more memory."
        ),
        verify=(
            "Capture all buckets, replay them in random order and compare every output with eager. Repeat "
            "with one pool per graph: the difference must disappear."
        ),
        status="worked around in ROCm/ATOM and vLLM as of 2026-09; vLLM expects ROCm 7.14 to fix it",
        evidence=(
            source(
                "ROCm/ATOM ffdf3bb atom/utils/cuda_graph.py _graph_pools",
                (
                    "ATOM's own table of GSM8K scores: 0.664 with a shared pool and 11 buckets, 0.976 with one "
                    "bucket, 0.960 with one pool per bucket. One pool per bucket is therefore its default."
                ),
            ),
            issue(
                "vllm-project/vllm#52644",
                (
                    "With ROCm 7.2.3, DeepSeek V4 loses accuracy on MI350 and MI355 if the whole "
                    "decode step is captured as one graph."
                ),
            ),
            issue(
                "vllm-project/vllm#52646",
                (
                    "The workaround gives each graph its own pool, needs about 7 GB more memory and is "
                    "planned to stay until ROCm 7.14."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="hip-graph-stale-host-write",
        title="HIP graph replay reads the previous value of a buffer just copied from the CPU (gfx950)",
        when=on(Platform.ROCM, rocm="7.2..7.2.4", archs=("gfx95",)),
        severity=Severity.CRITICAL,
        symptom=(
            "A small integer buffer is filled by a copy from the CPU right before the replay, but a kernel in "
            "the graph reads the value of the last step. The result is wrong indices or occasional memory "
            "access faults, never in eager."
        ),
        fix=(
            "Copy into a staging tensor first and move it into the graph's input with a kernel "
            "(`static.copy_(staging)` from another GPU tensor). Or make the kernel load the value as a vector "
            "instead of a scalar, as ROCm/ATOM did."
        ),
        verify=(
            "Write a counter into the buffer before each of 10,000 replays and let a captured kernel copy it "
            "out. Every value read back must be the one written."
        ),
        status="open as of 2026-09; worked around in one kernel of ROCm/ATOM",
        evidence=(
            issue(
                "ROCm/hip#3902",
                "Describes the stale read on MI355X with ROCm 7.2.4 and torch 2.10, with register dumps.",
            ),
            issue(
                "ROCm/ATOM#1434",
                (
                    "Merged change that forces a vector load because the scalar cache keeps the old value on gfx950; "
                    "it had not been tested on hardware yet when it was merged."
                ),
            ),
            issue(
                "ROCm/ATOM#1468",
                (
                    "A later test by the same author finds the stale value in memory right after the copy, before the "
                    "replay. This contradicts the explanation with the scalar cache."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="rdna4-large-graph-stale-pointers",
        title="HIP graphs of about 200 kernels or more read stale pointers on gfx1201",
        when=on(Platform.ROCM, archs=("gfx120",)),
        severity=Severity.WARNING,
        symptom=(
            "Small graphs replay correctly. Graphs with more than about 200 kernel nodes read pointer values "
            "of an earlier launch."
        ),
        fix=(
            "Split the work into graphs of fewer than 200 kernels, and compare a larger graph with eager "
            "before using it."
        ),
        verify=(
            "Capture the same chain with 100 and with 400 kernels, change the inputs, replay both and compare "
            "with eager."
        ),
        status="open (triage) as of 2026-09",
        evidence=(
            issue(
                "ROCm/hip#3887",
                (
                    "The title reports the problem for gfx1201 and graphs of about 200 kernel nodes or "
                    "more; the issue is open."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="aiter-mxfp4-moe-graph-corruption",
        title="AITER's MXFP4 fused MoE returns corrupted results inside HIP graphs on gfx950",
        when=on(Platform.ROCM, rocm="7.2..", archs=("gfx95",)),
        severity=Severity.WARNING,
        symptom=(
            "Models with 4-bit weights and activations that use the AITER_MXFP4_MXFP4 kernel produce "
            "repeated or garbage tokens when graphs are on. The output differs from run to run, and no "
            "error is raised."
        ),
        fix=(
            "Run this backend in eager (vLLM: cudagraph_mode NONE), or choose another MoE backend until AITER "
            "fixes its workspace."
        ),
        verify=(
            "Decode six fixed prompts three times with graphs and three times in eager; the texts must be identical."
        ),
        status=(
            "open as of 2026-09; the pull request with a workaround for vLLM was closed, apparently "
            "without being merged"
        ),
        packages=("amd-aiter",),
        undecidable="needs a 4-bit model of many gigabytes",
        evidence=(
            issue(
                "ROCm/aiter#3632",
                (
                    "Reports silent, non-deterministic corruption on MI355X with ROCm 7.2.0 and amd-aiter "
                    "0.1.13.post1; eager is correct."
                ),
            ),
            issue(
                "vllm-project/vllm#44988",
                ("Proposes to disable graphs for this backend only, and names the kernel's workspace as the cause."),
            ),
        ),
    ),
    KnownProblem(
        id="reduce-overhead-training-drift",
        title="reduce-overhead training converges worse than default or eager (reported on ROCm 7.0)",
        when=on(Platform.ROCM, torch="..2.10", rocm="..7.0", archs=("gfx94",)),
        severity=Severity.WARNING,
        symptom=(
            'Training with mode="reduce-overhead" reaches a clearly worse loss than mode="default" or eager, '
            "without an error."
        ),
        fix=(
            'Use mode="default" for training on these versions, or move to ROCm 7.14 with torch 2.14, where '
            "AMD could not reproduce it. Do not set triton.cudagraph_trees=False: that only selects the older "
            "capture implementation."
        ),
        verify=(
            'Train 200 steps from the same seed, three times each in eager, with mode="default" and with '
            'mode="reduce-overhead" (nine runs). The final losses of two modes must not differ by more than the final '
            "losses of repeated runs in one mode."
        ),
        status="closed as of 2026-09: not reproduced on torch 2.14 with HIP 7.14 (MI250)",
        evidence=(
            issue(
                "pytorch/pytorch#187715",
                (
                    "Reported on MI300X, ROCm 7.0, torch 2.10. AMD repeated the test on torch 2.14 and "
                    "HIP 7.14 and made sure that graphs were recorded: eager, default and "
                    "reduce-overhead reach similar losses."
                ),
            ),
            issue(
                "ROCm/clr#280",
                (
                    "The same reporter found that addresses are not stable on MI300X with HIP 7.0.51831 and names "
                    "memory pools without virtual memory as the cause."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="blas-workspace-freed-under-graph",
        title="Deleting one CUDA graph frees the GEMM workspace that another graph still uses",
        when=on(Platform.ROCM, Platform.CUDA, torch="2.12.."),
        severity=Severity.INFO,
        symptom=(
            "Two graphs were captured on the same stream. After the first is reset, replaying the second "
            "fails with an illegal memory access in a GEMM."
        ),
        fix=(
            "Capture each group of graphs on its own stream and keep the stream as long as the graphs exist. "
            "Do not delete graphs while other graphs of the same stream are replayed."
        ),
        verify="Capture A and B on one stream, delete A, replay B 100 times and compare with eager.",
        status="open as of 2026-09; a change for ROCm is proposed (#196920)",
        evidence=(
            issue(
                "pytorch/pytorch#193402",
                (
                    "Reproducer: graphs with separate pools still share the stream's cuBLAS workspace; names #175276 "
                    "of February 2026 as the cause."
                ),
            ),
            issue("pytorch/pytorch#175276", "The change since which torch clears the workspaces per stream."),
            issue(
                "pytorch/pytorch#196920",
                ("Open change for ROCm that allocates workspaces in eager; a comment lists what it breaks."),
            ),
        ),
    ),
    KnownProblem(
        id="vllm-full-graphs-on-rdna",
        title="Full-model graphs fail with memory access faults on RDNA 3 and 4 under vLLM",
        when=on(Platform.ROCM, archs=("gfx11", "gfx12")),
        severity=Severity.WARNING,
        symptom=(
            '"Memory access fault ... page not present" while capturing full decode graphs with Triton '
            "attention. Piecewise capture succeeds."
        ),
        fix=("Start vLLM with cudagraph_mode=PIECEWISE (attention then runs in eager), or with --enforce-eager."),
        verify="Start with PIECEWISE: all sizes must be captured. Compare one prompt with an eager run.",
        status=("open as of 2026-09; the pull request that makes PIECEWISE the default was closed by its author"),
        packages=("vllm",),
        undecidable="needs vLLM with a model",
        evidence=(
            issue("vllm-project/vllm#34154", "Crash report during capture on RDNA."),
            issue(
                "vllm-project/vllm#35485",
                (
                    "Explains that FULL fails and PIECEWISE works on gfx11 and gfx12; the pull request was "
                    "closed by its author."
                ),
            ),
        ),
    ),
    KnownProblem(
        id="hip-capture-errors-unreported",
        title="HIP before 7.14 does not report some illegal operations during graph capture",
        when=on(Platform.ROCM, rocm="..7.13"),
        severity=Severity.WARNING,
        symptom=(
            "An operation that must not be captured (a copy that the CPU waits for, a wait on an event of "
            "another stream) raises on CUDA but not on ROCm. The graph then lacks the operation, and its "
            "replay returns wrong or old values."
        ),
        fix=(
            "Use ROCm 7.14 or later. With an older version, run everything once before the capture, "
            "including torch.compile, and compare the first replay with eager, with inputs that differ "
            "from those of the capture."
        ),
        verify=(
            "Capture a function with a hidden `.item()` or a copy from unpinned memory: it must raise. Then "
            "replay with changed inputs and compare with eager."
        ),
        calls=("wait-uncaptured-event", "wait-other-capture"),
        status="fixed in ROCm 7.14; torch itself checks synchronous copies since 2.9",
        evidence=(
            issue(
                "pytorch/pytorch#187110",
                (
                    "AMD: before ROCm 7.14 HIP does not report errors during capture, so torch must check the capture "
                    "status first."
                ),
            ),
            issue(
                "pytorch/pytorch#155684",
                "The original report: no error for an illegal operation on AMD where NVIDIA raises.",
            ),
            issue(
                "pytorch/pytorch#158165",
                "Adds torch's own check for synchronous copies, because the runtime (6.4.1) reported no error.",
            ),
            issue(
                "pytorch/pytorch#185074",
                "A first compile inside a capture raises an error on CUDA and none with HIP graphs.",
            ),
            source(
                "HIP runtime 6.4.3 and 7.2.4, run against a simulated GPU",
                (
                    "In 6.4.3 and 7.2.4, waiting for an event of a stream that does not capture "
                    "returns success and adds no node. Allocations and synchronous copies do return "
                    "errors."
                ),
            ),
        ),
    ),
)
