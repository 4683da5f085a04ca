"""Captured graphs that answer wrongly, on HIP and elsewhere."""

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.platform import Platform
from rocsolid.model.setting import on

PROBLEMS = (
    KnownProblem(
        id="hip-graph-replay-corruption",
        title="HIP graph replay silently corrupts output in about one process out of five",
        when=on(Platform.ROCM, rocm="7.2.0..7.2.3", archs=("gfx94",)),
        severity=Severity.CRITICAL,
        symptom=(
            "The same program with the same inputs and seed is right in most runs and produces garbage in "
            "others, without any error. Eager execution of the same kernels is always right."
        ),
        fix=(
            "Leave ROCm 7.2.0 to 7.2.3: go back to 7.1.1 or up to 7.13 or later (the libamdhip64 inside the "
            "torch wheel counts, not only /opt/rocm). Until then run eager, or accept graphs only when a replay"
            " was compared with eager in that very process."
        ),
        verify=(
            "Start the workload in 14 fresh processes, replay with changed inputs and compare each with eager; "
            "all 14 must agree (at one bad process in five, 14 clean starts are about 95 % sure). `rocsolid` "
            "reports the version of the loaded libamdhip64."
        ),
        status="open as read 2026-09; reported clean on 7.0, 7.1.1 and 7.13",
        evidence=(
            issue(
                "ROCm/clr#279",
                "Reports the corruption on MI300X with ROCm 7.2.0 to 7.2.3, clean with clr 7.1.1, ROCm 7.0 and 7.13, and gives bad rates over five fresh starts.",
            ),
            issue(
                "vllm-project/vllm#46386",
                "vLLM forces eager for one ROCm test after swapping only libamdhip64: 7.1.1 clean, 7.2.0, 7.2.2 and 7.2.3 broken, to be undone with 7.14.",
            ),
        ),
    ),
    KnownProblem(
        id="shared-graph-pool-corruption",
        title="Several graphs in one memory pool corrupt each other on ROCm",
        when=on(Platform.ROCM, rocm="7.2..7.13", archs=("gfx94", "gfx95")),
        severity=Severity.WARNING,
        symptom=(
            "A set of graphs captured into one shared pool (one per batch size, say) is right for a few steps "
            "and then drifts into wrong values; with one pool per graph, or a single graph, the answers are "
            "right."
        ),
        fix=(
            "Give each graph its own pool: pass no `pool=` to torch.cuda.graph, or one "
            "`torch.cuda.graph_pool_handle()` per bucket; in ATOM leave ATOM_PER_BUCKET_POOL at its default. "
            "Plan for more reserved memory."
        ),
        verify=(
            "Capture all buckets, replay them in random order and compare every output with eager; repeat with "
            "one pool per graph and see the difference vanish."
        ),
        status="worked around in ATOM and vLLM as read 2026-09; vLLM expects ROCm 7.14 to fix it",
        evidence=(
            source(
                "ROCm/ATOM ffdf3bb atom/utils/cuda_graph.py _graph_pools",
                "ATOM's own table: shared pool with 11 buckets scores 0.664 on GSM8K, one bucket 0.976, one pool per bucket 0.960, so one pool per bucket is its default.",
            ),
            issue(
                "vllm-project/vllm#52644",
                "DeepSeek V4 loses accuracy on MI350 and MI355 with full decode graphs; environment is ROCm 7.2.3.",
            ),
            issue(
                "vllm-project/vllm#52646",
                "The workaround gives graphs separate pools, costs about 7 GB, and is meant to last until ROCm 7.14.",
            ),
        ),
    ),
    KnownProblem(
        id="hip-graph-stale-host-write",
        title="Graph replay on gfx950 reads the previous value of a buffer just copied from the host",
        when=on(Platform.ROCM, rocm="7.2..7.2.4", archs=("gfx95",)),
        severity=Severity.CRITICAL,
        symptom=(
            "A small integer buffer is filled by a host-to-device copy right before replay, but a kernel in the"
            " graph sees last step's content: intermittent memory access faults or wrong indices, never in "
            "eager mode."
        ),
        fix=(
            "Copy into a staging tensor and move it into the graph's input with a device kernel "
            "(`static.copy_(staging)` from another device tensor), or make the kernel load the value as a "
            "vector instead of a scalar. ATOM did the latter."
        ),
        verify=(
            "Write a counter into the buffer before each of 10,000 replays and let a captured kernel copy it "
            "out; every value read back must be the one written."
        ),
        status="open as read 2026-09; one kernel worked around in ATOM",
        evidence=(
            issue(
                "ROCm/hip#3902",
                "Describes the stale read on MI355X with ROCm 7.2.4 and torch 2.10, with register dumps.",
            ),
            issue(
                "ROCm/ATOM#1434",
                "Merged change that forces a vector load because the scalar cache keeps the old value on gfx950; it notes that the run-time check was still pending.",
            ),
            issue(
                "ROCm/ATOM#1468",
                "A later probe by the same author finds the stale value in memory right after the copy, before replay, which contradicts the scalar-cache explanation.",
            ),
        ),
    ),
    KnownProblem(
        id="rdna4-large-graph-stale-pointers",
        title="Graphs of some 200 kernels or more read stale pointers on gfx1201",
        when=on(Platform.ROCM, archs=("gfx120",)),
        severity=Severity.WARNING,
        symptom=(
            "Small graphs replay correctly, graphs beyond about 200 kernel nodes read pointer values from an "
            "earlier launch."
        ),
        fix=(
            "Split the work into graphs of fewer than 200 kernels, and check replay against eager before "
            "trusting a larger one."
        ),
        verify=(
            "Capture the same chain with 100 and with 400 kernels, change the inputs, replay both and compare "
            "with eager."
        ),
        status="open (triage) as read 2026-09",
        evidence=(
            issue(
                "ROCm/hip#3887",
                "Title and status confirm the report for gfx1201 and graphs of roughly 200 kernel nodes and more.",
            ),
        ),
    ),
    KnownProblem(
        id="aiter-mxfp4-moe-graph-corruption",
        title="AITER's MXFP4 fused MoE gives corrupted output inside graphs on gfx950",
        when=on(Platform.ROCM, rocm="7.2..", archs=("gfx95",)),
        severity=Severity.WARNING,
        symptom=(
            "Models with 4-bit weights and activations through the AITER_MXFP4_MXFP4 kernel emit repeated or "
            "garbage tokens when graphs are on; it changes from run to run and raises nothing."
        ),
        fix=(
            "Run that backend eager (vLLM: cudagraph_mode NONE) or choose another MoE backend until AITER fixes"
            " its workspace."
        ),
        verify=("Decode six fixed prompts three times with graphs and three times eager; the texts must be the same."),
        status="open as read 2026-09; the vLLM workaround was closed, not merged as far as can be seen",
        packages=("amd-aiter",),
        evidence=(
            issue(
                "ROCm/aiter#3632",
                "Reports silent, non-deterministic corruption on MI355X with ROCm 7.2.0 and amd-aiter 0.1.13.post1; eager is clean.",
            ),
            issue(
                "vllm-project/vllm#44988",
                "Proposes to switch graphs off for exactly that backend and names the kernel's workspace as the cause.",
            ),
        ),
    ),
    KnownProblem(
        id="reduce-overhead-training-drift",
        title="reduce-overhead was reported to slow down convergence on ROCm 7.0",
        when=on(Platform.ROCM, torch="..2.10", rocm="..7.0", archs=("gfx94",)),
        severity=Severity.WARNING,
        symptom=(
            'Training with mode="reduce-overhead" reaches a clearly worse loss than mode="default" or eager, '
            "without an error."
        ),
        fix=(
            'Use mode="default" for training on this stack, or move to ROCm 7.14 with torch 2.14, where AMD '
            "could not see it any more. Do not set triton.cudagraph_trees=False: that only selects the older "
            "graph path."
        ),
        verify=(
            "Train 200 steps three times from one seed in eager, default and reduce-overhead; the three final "
            "losses must lie within their own run-to-run spread."
        ),
        status="closed as read 2026-09: not reproduced on torch 2.14 with HIP 7.14 (MI250)",
        evidence=(
            issue(
                "pytorch/pytorch#187715",
                "Reported on MI300X, ROCm 7.0, torch 2.10; AMD's re-run on torch 2.14 and HIP 7.14 finds eager, default and reduce-overhead losses alike with graphs recorded.",
            ),
            issue(
                "ROCm/clr#280",
                "The same reporter blames the runtime's non-VM pool path for unstable addresses on MI300X with HIP 7.0.51831.",
            ),
        ),
    ),
    KnownProblem(
        id="blas-workspace-freed-under-graph",
        title="Destroying one graph frees the GEMM workspace another graph still uses",
        when=on(Platform.ROCM, Platform.CUDA, torch="2.12.."),
        severity=Severity.INFO,
        symptom=(
            "Two graphs were captured on the same stream; after the first is reset, replaying the second ends "
            "in an illegal memory access inside a GEMM."
        ),
        fix=(
            "Capture each family of graphs on its own stream and keep it as long as they live; do not destroy "
            "graphs while others of that stream are replayed."
        ),
        verify="Capture A and B on one stream, delete A, replay B 100 times and compare with eager.",
        status="open as read 2026-09; eager workspaces for ROCm proposed (#196920)",
        evidence=(
            issue(
                "pytorch/pytorch#193402",
                "Reproducer: graphs with separate pools still share the stream's cuBLAS workspace; blames #175276 of February 2026.",
            ),
            issue("pytorch/pytorch#175276", "Introduced the clearing of workspaces per stream."),
            issue("pytorch/pytorch#196920", "Open change for ROCm, with a comment on what it breaks."),
        ),
    ),
    KnownProblem(
        id="vllm-full-graphs-on-rdna",
        title="Full-model graphs fault on RDNA 3 and 4 under vLLM",
        when=on(Platform.ROCM, archs=("gfx11", "gfx12")),
        severity=Severity.WARNING,
        symptom=(
            '"Memory access fault ... page not present" while capturing full decode graphs of Triton attention;'
            " piecewise capture succeeds."
        ),
        fix="cudagraph_mode=PIECEWISE (attention then runs eager), or --enforce-eager.",
        verify="Start with PIECEWISE and see all sizes captured; compare one prompt with an eager run.",
        status="open as read 2026-09; the proposed default was withdrawn",
        packages=("vllm",),
        evidence=(
            issue("vllm-project/vllm#34154", "Crash report during capture on RDNA."),
            issue(
                "vllm-project/vllm#35485",
                "Explains that FULL fails and PIECEWISE works on gfx11 and gfx12; closed by its author.",
            ),
        ),
    ),
    KnownProblem(
        id="hip-capture-errors-unreported",
        title="HIP before 7.14 lets some illegal operations pass during capture",
        when=on(Platform.ROCM, rocm="..7.13"),
        severity=Severity.WARNING,
        symptom=(
            "An operation that must not be captured (a copy that the host waits for, a wait on a foreign event) raises "
            "on CUDA but passes on ROCm; the graph lacks it and replays wrong or old values."
        ),
        fix=(
            "ROCm 7.14 or later. Before that, compare the first replay with eager on inputs other than those "
            "captured, and run everything once before capture, torch.compile included."
        ),
        verify=(
            "Capture a function with a hidden `.item()` or unpinned host copy: it must raise. Then replay with "
            "changed inputs and compare with eager."
        ),
        calls=("wait-uncaptured-event", "wait-other-capture"),
        status="fixed in ROCm 7.14; torch checks synchronous copies itself since 2.9",
        evidence=(
            issue(
                "pytorch/pytorch#187110",
                "AMD: before ROCm 7.14 HIP does not report errors during capture and torch must ask for the capture status first.",
            ),
            issue(
                "pytorch/pytorch#155684",
                "The original report: no error for an illegal operation on AMD where NVIDIA raises.",
            ),
            issue(
                "pytorch/pytorch#158165",
                "torch's own check for synchronous copies, because the runtime (6.4.1) stayed silent.",
            ),
            issue(
                "pytorch/pytorch#185074",
                "A first compile inside a capture fails loudly on CUDA and is swallowed on hipGraph.",
            ),
            source(
                "HIP runtime 6.4.3 and 7.2.4, run against a pretend device",
                "In 6.4.3 and 7.2.4 a wait on an event of a non-capturing stream returns success and adds no node, while allocations and synchronous copies do raise.",
            ),
        ),
    ),
)
