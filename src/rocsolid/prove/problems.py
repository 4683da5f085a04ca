"""The program of each known problem: it looks for the symptom on this machine.

Where the catalogue says that the machine has the problem, the symptom confirms it. Elsewhere the program runs too, as a twin: a symptom
there refutes the stated platforms, versions or chips. The absence of a symptom refutes only a problem that always appears.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.problems import problem as known_problem
from rocsolid.model.environment import CheckStatus, Environment
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.proof import ClaimResult, ClaimVerdict
from rocsolid.process.run_command import Command, module_command, run_with_deadline
from rocsolid.prove.check import CHECKS, CannotDecide, Check, Task, plain, result

_PROFILED_KERNELS: Final = 100
_STALL_MS: Final = 5.0
_REPLAY_PROCESSES: Final = 3
_REPLAY_PROCESSES_IF_CORRUPTING: Final = 14


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """Whether the symptom was seen, and what was seen."""

    seen: bool
    detail: str


def judge(problem: KnownProblem, env: Environment, symptom: Symptom, *, always: bool) -> tuple[ClaimVerdict, str]:
    """Return the verdict on a known problem."""
    stated = problem.when.holds(env)
    if stated and symptom.seen:
        return ClaimVerdict.CONFIRMED, symptom.detail
    if symptom.seen:
        return ClaimVerdict.REFUTED, f"the symptom also appears here, outside of {problem.when}: {symptom.detail}"
    if not stated:
        return (
            ClaimVerdict.NOT_APPLICABLE,
            f"stated for {problem.when}; the program ran without the symptom: {symptom.detail}",
        )
    if always:
        return ClaimVerdict.REFUTED, f"the symptom does not appear: {symptom.detail}"
    return ClaimVerdict.COULD_NOT_RUN, f"not reproduced, which does not refute it: {symptom.detail}"


def looks_for(
    name: str,
    *,
    always: bool = False,
    gpu: bool = True,
    rank: int = 25,
    estimate_s: float = 12.0,
    deadline_s: float = 120.0,
) -> Callable[[Callable[[], Symptom]], Callable[[], Symptom]]:
    """Declare the function below as the program of the problem with this id."""

    def declare(find: Callable[[], Symptom]) -> Callable[[], Symptom]:
        def program(task: Task) -> Iterator[ClaimResult]:
            declared = known_problem(name)
            symptom = find()
            verdict, detail = judge(declared, task.env, symptom, always=always)
            for claim in task.claims:
                if verdict is ClaimVerdict.REFUTED and symptom.seen and claim.id != f"problem:{name}":
                    # Only the problem itself states where the symptom does not appear.
                    yield result(claim, ClaimVerdict.COULD_NOT_RUN, f"this does not decide it: {detail}")
                else:
                    yield result(claim, verdict, detail)

        decides = f"a program {'that always shows' if always else 'that may show'} the symptom of {name}"
        CHECKS[f"problem:{name}"] = Check(
            name=f"problem:{name}",
            decides=decides,
            program=program,
            rank=rank,
            estimate_s=estimate_s,
            deadline_s=deadline_s,
            gpu=gpu,
        )
        return find

    return declare


def child(code: str, *, deadline_s: float = 90.0, **env: str) -> tuple[CheckStatus, str]:
    """Run code that may hang or crash; return how it ended, and its last line."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")  # Triton and spawned processes read it
        file.write_text(code, encoding="utf-8")
        command = [sys.executable, str(file)]
        done = run_with_deadline(
            Command(name="child", command=command, deadline_s=deadline_s, env={**os.environ, **env})
        )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return done.check.status, (lines[-1] if lines else "")[:300]


def ends_badly(code: str, *, deadline_s: float = 90.0, **env: str) -> Symptom:
    """The symptom is that the process fails, crashes or hangs."""
    status, last = child(code, deadline_s=deadline_s, **env)
    return Symptom(seen=status is not CheckStatus.OK, detail=f"{status.value}: {last}")


def captured(call: Callable[[], Any], stream: Any = None, **options: Any) -> tuple[Any, Any]:
    """Warm up on a side stream and capture a call; return the graph and its output."""
    import torch

    side = stream or torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, **options):
        output = call()
    return graph, output


def error_in_capture(call: Callable[[], object]) -> str:
    """The texts of the errors that a call raises in a capture, the first one first; empty if it raises none."""
    import torch

    graph, home = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    x = torch.zeros(4, device="cuda")
    x.add_(1)  # the kernel is loaded before the capture
    texts: list[str] = []
    try:
        with torch.cuda.graph(graph):
            x.add_(1)
            call()
    except Exception as raised:  # noqa: BLE001 - the error is the result
        error: BaseException | None = raised
        while error is not None:
            texts.insert(0, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
            error = error.__context__
        torch.cuda.set_stream(home)  # up to 2.14, torch leaves the capture's stream
    return "\n".join(texts)


def differs(got: Any, want: Any) -> str:
    """A text if two tensors differ; empty if they do not."""
    from rocsolid.numerics import error_limit, max_error

    error = max_error(got.detach().cpu(), want.detach().cpu())
    return f"relative error {plain(error)}" if error > error_limit(want) else ""


@looks_for("hip-graph-replay-corruption", rank=0, estimate_s=40, deadline_s=300)
def replay_corruption() -> Symptom:
    """Replay a graph 200 times in fresh processes, and compare every replay with eager."""
    from rocsolid.probe.quick_facts import quick_environment

    affected = known_problem("hip-graph-replay-corruption").applies(quick_environment())
    total = _REPLAY_PROCESSES_IF_CORRUPTING if affected else _REPLAY_PROCESSES
    wrong = []
    for number in range(total):
        command = module_command("rocsolid.probe.active_programs", "capture")
        done = run_with_deadline(Command(name="capture", command=command, deadline_s=60.0, env=dict(os.environ)))
        if '"status": "ok"' not in done.stdout:
            wrong.append(f"process {number + 1}: {done.stdout.strip()[-200:] or done.check.detail}")
    return Symptom(seen=bool(wrong), detail="; ".join(wrong) or f"{total} processes of 200 replays equal eager")


@looks_for("shared-graph-pool-corruption")
def shared_pool() -> Symptom:
    """Capture six sizes into one pool, replay them in random order, and compare."""
    import random

    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(6))).cuda()
    pool, side, graphs = torch.cuda.graph_pool_handle(), torch.cuda.Stream(), []
    with torch.no_grad():
        for rows in (32, 16, 8, 4, 2, 1):
            x = torch.randn(rows, 128, device="cuda")
            graph, y = captured(lambda x=x: model(x), side, pool=pool)  # type: ignore[misc]
            graphs.append((x, graph, y))
        order = random.Random(0)  # noqa: S311 - not for secrets
        for step in range(120):
            x, graph, y = order.choice(graphs)
            x.normal_()
            graph.replay()
            if found := differs(y.clone(), model(x)):
                return Symptom(seen=True, detail=f"step {step}: {found}")
    return Symptom(seen=False, detail="120 replays of 6 graphs in one pool equal eager")


@looks_for("hip-graph-stale-host-write")
def stale_host_write() -> Symptom:
    """Write a counter from the CPU before each replay, and read it back through a captured kernel."""
    import torch

    x = torch.zeros(16, dtype=torch.int32, device="cuda")
    graph, y = captured(lambda: x + 0)
    for number in range(3000):
        x.copy_(torch.full((16,), number, dtype=torch.int32))
        graph.replay()
        if int(y[0]) != number:
            return Symptom(seen=True, detail=f"wrote {number}, read {int(y[0])}")
    return Symptom(seen=False, detail="3,000 values were read as written")


@looks_for("rdna4-large-graph-stale-pointers")
def large_graph() -> Symptom:
    """Replay chains of 100 and 400 kernels with changed inputs."""
    import torch

    for kernels in (100, 400):
        x = torch.zeros(64, device="cuda")

        def chain(x: Any = x, kernels: int = kernels) -> Any:
            for _ in range(kernels):
                x = x + 1
            return x

        graph, y = captured(chain)
        for value in range(20):
            x.fill_(value)
            graph.replay()
            if float(y[0]) != value + kernels:
                return Symptom(seen=True, detail=f"{kernels} kernels: expected {value + kernels}, read {float(y[0])}")
    return Symptom(seen=False, detail="chains of 100 and 400 kernels are right")


_TRAIN: Final = """
import sys, torch
def losses(mode):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).cuda()
    best = torch.optim.SGD(model.parameters(), lr=0.05)
    run = model if mode == "eager" else torch.compile(model, mode=mode)
    for step in range(60):
        x = torch.randn(64, 32, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        torch.compiler.cudagraph_mark_step_begin()
        loss = (run(x) - x.sum(-1, keepdim=True)).square().mean()
        best.zero_grad(); loss.backward(); best.step()
    return loss.item()
eager, compiled, graphs = map(losses, ("eager", "default", "reduce-overhead"))
print(eager, compiled, graphs)
sys.exit(abs(graphs - eager) > 0.05 * abs(eager) + 2 * abs(compiled - eager))
"""


@looks_for("reduce-overhead-training-drift", estimate_s=45, deadline_s=180)
def training_drift() -> Symptom:
    """Train a small model in three modes from the same seed."""
    return ends_badly(_TRAIN, deadline_s=150.0)


@looks_for("blas-workspace-freed-under-graph")
def workspace_freed() -> Symptom:
    """Capture two GEMMs on one stream, delete one graph, and replay the other."""
    import torch

    a = torch.randn(512, 512, device="cuda")
    side = torch.cuda.Stream()
    graphs = [captured(lambda: a @ a, side) for _ in range(2)]
    del graphs[0]
    torch.cuda.empty_cache()
    graph, y = graphs[0]
    for step in range(100):
        a.normal_()
        torch.randn(1 << 20, device="cuda")
        graph.replay()
        if found := differs(y, a @ a):
            return Symptom(seen=True, detail=f"replay {step}: {found}")
    return Symptom(seen=False, detail="100 replays after deleting the other graph equal eager")


@looks_for("hip-capture-errors-unreported", always=True, rank=1)
def errors_unreported() -> Symptom:
    """Capture a wait for an event of a stream outside of the capture, which must raise."""
    import torch

    other, event = torch.cuda.Stream(), torch.cuda.Event()
    event.record(other)
    text = error_in_capture(lambda: torch.cuda.current_stream().wait_event(event))
    return Symptom(seen=not text, detail=text or "the wait raised no error")


_HANDLE: Final = """
import threading, torch
x = torch.randn(64, 64, device="cuda", dtype=torch.float16)
bias = torch.zeros(64, device="cuda", dtype=torch.float16)
side = torch.cuda.Stream()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
errors = []
def gemm():
    try:
        with torch.cuda.stream(side):
            torch.addmm(bias, x, x)
    except Exception as error:
        errors.append(error)
with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
    y = x + 1
    thread = threading.Thread(target=gemm)
    thread.start(); thread.join()
graph.replay(); torch.cuda.synchronize()
print("ok" if not errors else errors[0])
assert not errors
"""


@looks_for("hipblaslt-handle-in-capture", rank=1, estimate_s=20, deadline_s=100)
def blas_handle() -> Symptom:
    """Run the first GEMM of a thread while a capture is active."""
    status, last = child(_HANDLE, deadline_s=60.0)
    named = "blas" in last.lower() or status in (CheckStatus.HUNG, CheckStatus.CRASHED)
    return Symptom(seen=status is not CheckStatus.OK and named, detail=f"{status.value}: {last}")


_WATCHDOG: Final = """
import os, tempfile, torch, torch.distributed as dist
file = tempfile.NamedTemporaryFile()
dist.init_process_group("nccl", init_method=f"file://{file.name}", rank=0, world_size=1)
x = torch.ones(1024, device="cuda")
dist.all_reduce(x)
for _ in range(50):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
    graph.replay()
torch.cuda.synchronize()
print("ok", flush=True)
os._exit(0)
"""


@looks_for("rccl-watchdog-breaks-capture", estimate_s=25)
def watchdog() -> Symptom:
    """Capture 50 graphs after a collective, with the watchdog of the process group running."""
    return ends_badly(_WATCHDOG)


@looks_for("rng-state-read-in-capture", always=True, rank=6)
def rng_state() -> Symptom:
    """Read the random number state in a capture."""
    import torch

    text = error_in_capture(torch.cuda.get_rng_state)
    return Symptom(seen=bool(text), detail=text or "reading the state raised no error")


_CHAIN: Final = """
import torch
x = torch.zeros(16, device="cuda"); x.add_(1)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range({kernels}):
        x.add_(1)
graph.replay(); torch.cuda.synchronize()
print("ok")
"""


@looks_for("big-graph-instantiate-segfault", rank=6, estimate_s=20)
def big_graph() -> Symptom:
    """Capture 30,000 kernels in one graph."""
    status, last = child(_CHAIN.format(kernels=30_000))
    return Symptom(seen=status is CheckStatus.CRASHED, detail=f"{status.value}: {last}")


_REPEATED: Final = """
import torch
x = torch.zeros(16, device="cuda"); x.add_(1)
for _ in range(500):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
    graph.replay()
for _ in range(10_000):
    graph.replay()
torch.cuda.synchronize()
print("ok")
"""


@looks_for("mi350-repeated-graph-crash", estimate_s=20)
def repeated_graphs() -> Symptom:
    """Capture 500 graphs, and replay one 10,000 times."""
    return ends_badly(_REPEATED)


_COLLECTED: Final = """
import gc, torch, triton, triton.language as tl
@triton.jit
def add(x, C: tl.constexpr):
    tl.store(x, tl.load(x) + C)
x = torch.zeros(16, device="cuda")
gc.set_threshold(1)
for number in range(50):
    add[(1,)](x, C=number)
    add.device_caches.clear() if hasattr(add, "device_caches") and number % 5 == 0 else None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        garbage = [[] for _ in range(100)]
    graph.replay()
torch.cuda.synchronize()
"""


@looks_for("gc-frees-triton-kernel-in-capture", estimate_s=20)
def collected_in_capture() -> Symptom:
    """Capture 50 times while garbage is collected all the time."""
    status, last = child(_COLLECTED)
    seen = status is not CheckStatus.OK or "__del__" in last or "captur" in last
    return Symptom(seen=seen, detail=f"{status.value}: {last or 'no message'}")


@looks_for("miopen-not-graph-safe", estimate_s=20)
def convolution() -> Symptom:
    """Capture a convolution after a warm-up, and compare replays with eager."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Conv2d(8, 16, 3).cuda()
    x = torch.randn(2, 8, 32, 32, device="cuda")
    with torch.no_grad():
        graph, y = captured(lambda: model(x))
        for step in range(20):
            x.normal_()
            graph.replay()
            if found := differs(y, model(x)):
                return Symptom(seen=True, detail=f"replay {step}: {found}")
    return Symptom(seen=False, detail="20 replays of a convolution equal eager")


@looks_for("no-conditional-nodes-on-hip", always=True)
def conditional_nodes() -> Symptom:
    """Ask the runtime for the call that makes a conditional node."""
    import ctypes

    from rocsolid.prove.runtime import loaded_library

    library = ctypes.CDLL(loaded_library())
    has = any(
        hasattr(library, name) for name in ("hipGraphConditionalHandleCreate", "cudaGraphConditionalHandleCreate")
    )
    return Symptom(
        seen=not has, detail="the runtime has conditional nodes" if has else "the runtime has no conditional nodes"
    )


def fail_a_capture() -> None:
    """Make a capture fail, and ignore the error."""
    import torch

    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(1 << 20, device="cuda")
    try:
        with torch.cuda.graph(graph):
            # rocsolid: allow[host-sync-in-captured-region] the failure is wanted
            (x + 1).sum().item()
    except Exception:  # noqa: BLE001, S110 - the failure is wanted
        pass


@looks_for("capture-stream-not-restored", always=True, rank=7)
def stream_not_restored() -> Symptom:
    """Compare the current stream before and after a failed capture."""
    import torch

    before = torch.cuda.current_stream()
    fail_a_capture()
    same = torch.cuda.current_stream() == before
    return Symptom(seen=not same, detail="the stream was restored" if same else "the stream is still the capture's")


@looks_for("failed-capture-leaks-pool", rank=26)
def leaked_pool() -> Symptom:
    """Compare the reserved memory before and after a failed capture."""
    import gc

    import torch

    torch.zeros(4, device="cuda").sum().item()
    home = torch.cuda.current_stream()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    fail_a_capture()
    torch.cuda.set_stream(home)
    gc.collect()
    torch.cuda.empty_cache()
    leaked = torch.cuda.memory_reserved() - before
    return Symptom(seen=leaked > 0, detail=f"{leaked} bytes more are reserved")


@looks_for("stale-capture-state", always=True, rank=7)
def stale_state() -> Symptom:
    """Ask for the state of the stream after a failed capture."""
    import ctypes

    import torch

    from rocsolid.torchapi.graphs.driver_api import driver_function

    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(16, device="cuda")
    text = ""
    try:
        with torch.cuda.graph(graph, stream=side):
            # rocsolid: allow[host-sync-in-captured-region] the failure is wanted
            x.sum().item()
    except Exception as error:  # noqa: BLE001 - the failure is wanted
        text = str(error).splitlines()[0]
    query, state = driver_function("StreamIsCapturing"), ctypes.c_int()
    if query is None:
        msg = "the runtime does not report the state of a stream"
        raise CannotDecide(msg)
    query(ctypes.c_void_p(side.cuda_stream), ctypes.byref(state))
    return Symptom(
        seen=state.value != 0, detail=f"after {text!r} the state of the stream is {state.value} (0: not capturing)"
    )


@looks_for("mix-order-reduction-drops-gradients", estimate_s=30)
def mixed_reductions() -> Symptom:
    """Compare the gradients of a normalization whose scale and shift are slices of one parameter."""
    import torch

    def grads(backend: str) -> Any:
        torch.manual_seed(0)
        table = torch.nn.Parameter(torch.randn(2 * 512, device="cuda"))
        x = torch.randn(4096, 512, device="cuda", requires_grad=True)

        def norm(x: Any, table: Any) -> Any:
            scale, shift = table.chunk(2)
            return torch.nn.functional.layer_norm(x, (512,)) * (1 + scale) + shift

        torch.compile(norm, backend=backend)(x, table).square().sum().backward()
        return table.grad

    found = differs(grads("inductor"), grads("aot_eager"))
    return Symptom(seen=bool(found), detail=found or "the gradients are equal")


@looks_for("combo-kernels-wrong-on-rocm", estimate_s=30)
def combo_kernels() -> Symptom:
    """Compile two reductions into one kernel, with dynamic shapes."""
    import torch

    def means(x: Any) -> Any:
        return x.mean(), x.mean(-2, keepdim=True)

    compiled = torch.compile(means, dynamic=True, options={"combo_kernels": True})
    for rows in (64, 96):
        x = torch.randn(8, rows, 128, device="cuda") + 1
        for got, want in zip(compiled(x), means(x), strict=True):
            if found := differs(got, want):
                return Symptom(seen=True, detail=found)
    return Symptom(seen=False, detail="both results equal eager")


@looks_for("triton-rdna-barrier-miscompile", estimate_s=20)
def barrier_miscompile() -> Symptom:
    """Run a compiled reduction 64 times, and compare all results."""
    import torch

    compiled = torch.compile(lambda x: torch.softmax(x, -1).sum(0))
    x = torch.randn(512, 1024, device="cuda")
    want = torch.softmax(x, -1).sum(0)
    wrong = sum(bool(differs(compiled(x), want)) for _ in range(64))
    return Symptom(seen=wrong > 0, detail=f"{wrong} of 64 results differ")


_CUMSUM: Final = """
import torch
x = torch.randn(64, 4000, device="cuda")
got = torch.compile(lambda x: torch.cumsum(x, -1))(x)
error = (got - torch.cumsum(x.double(), -1)).abs().max().item()
print(error)
assert error < 1e-2
"""


@looks_for("triton-buffer-ops-wrong-on-and-off", estimate_s=30)
def buffer_ops() -> Symptom:
    """Compile a cumulative sum with the variable off and on."""
    found = {value: ends_badly(_CUMSUM, AMDGCN_USE_BUFFER_OPS=value, TRITON_ALWAYS_COMPILE="1") for value in ("0", "1")}
    detail = "; ".join(f"{value}: {symptom.detail}" for value, symptom in found.items())
    return Symptom(seen=any(symptom.seen for symptom in found.values()), detail=detail)


@looks_for("lds-overflow-at-launch", rank=9)
def lds_overflow() -> Symptom:
    """Compile and launch a kernel that needs more LDS than a workgroup has."""
    status, last = child(_LDS, deadline_s=80.0)
    return Symptom(seen="OutOfResources" in last, detail=f"{status.value}: {last}")


_LDS: Final = """
import torch, triton, triton.language as tl
@triton.jit
def big(a, b, c, M: tl.constexpr, K: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, K)
    total = tl.zeros((M, M), tl.float32)
    for step in range(0, 4):
        left = tl.load(a + rows[:, None] * 4 * K + inner[None, :] + step * K)
        right = tl.load(b + (inner[:, None] + step * K) * M + rows[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * M + rows[None, :], total)
M, K = 256, 256
a = torch.randn(M, 4 * K, device="cuda").half(); b = torch.randn(4 * K, M, device="cuda").half()
c = torch.empty(M, M, device="cuda")
try:
    big[(1,)](a, b, c, M=M, K=K, num_stages=3, num_warps=8)
    torch.cuda.synchronize(); print("launched")
except Exception as error:
    print(type(error).__name__, str(error).splitlines()[0])
"""


@looks_for("fp8-type-differs-by-generation", always=True, rank=8)
def fp8_type() -> Symptom:
    """Multiply two matrices in the fp8 type that the catalogue names for this chip, and in the other one."""
    import torch

    from rocsolid.prove.gpu import this_chip

    chip = this_chip()
    works = []
    for name in ("float8_e4m3fn", "float8_e4m3fnuz"):
        code = (
            "import torch\n"
            f"a = torch.ones(32, 32, device='cuda').to(torch.{name})\n"
            "one = torch.ones((), device='cuda')\n"
            "torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16); torch.cuda.synchronize()\n"
        )
        if child(code)[0] is CheckStatus.OK:
            works.append(name)
    stated = [name for name in works if chip and name in chip.fp8]
    # On ROCm it is confirmed if exactly the stated type works. CUDA has one type, as no AMD statement covers it.
    seen = bool(torch.version.hip) and bool(stated) and works == stated
    return Symptom(
        seen=seen, detail=f"works: {', '.join(works) or 'none'}; stated: {', '.join(chip.fp8) if chip else 'nothing'}"
    )


_SHAPES: Final = """
import torch
model = torch.nn.Linear(64, 64).cuda().half()
run = torch.compile(model, mode="max-autotune", dynamic=False)
with torch.no_grad():
    for rows in (16, 32, 48, 64):
        run(torch.randn(rows, 64, device="cuda", dtype=torch.float16))
torch.cuda.synchronize(); print("ok")
"""


@looks_for("max-autotune-many-shapes-gfx950", rank=45, estimate_s=80, deadline_s=260)
def many_shapes() -> Symptom:
    """Compile one layer with max-autotune for four shapes."""
    return ends_badly(_SHAPES, deadline_s=240.0)


@looks_for("max-autotune-left-on-by-image", gpu=False, rank=4)
def left_on_by_image() -> Symptom:
    """Look for the variable in this process; without it, this image does not have the problem."""
    value = os.environ.get("TORCHINDUCTOR_MAX_AUTOTUNE", "")
    return Symptom(
        seen=value == "1", detail=f"TORCHINDUCTOR_MAX_AUTOTUNE={value}" if value else "the variable is not set"
    )


_TUNABLE: Final = "import torch; print(torch.cuda.tunable.is_enabled(), torch.cuda.tunable.tuning_is_enabled())"


@looks_for("tunableop-enabled-also-tunes", always=True, rank=8)
def tunable_op() -> Symptom:
    """Set the variable, and ask torch whether it also tunes."""
    status, last = child(_TUNABLE, PYTORCH_TUNABLEOP_ENABLED="1")
    from rocsolid.probe.quick_facts import quick_environment

    on_rocm = known_problem("tunableop-enabled-also-tunes").when.holds(quick_environment())
    detail = f"{status.value}: enabled, tuning: {last}"
    return Symptom(seen=last == "True True" and on_rocm, detail=detail)  # on CUDA there is nothing to tune


_SEGMENTS: Final = """
import torch
x = torch.zeros(1 << 29, dtype=torch.float16).to("cuda")
for size in (1 << 20, 3 << 20, 7 << 20) * 8:
    y = torch.ones(size, device="cuda"); del y
graph = torch.cuda.CUDAGraph(); z = torch.ones(4, device="cuda")
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    w = z + 1
graph.replay(); torch.cuda.synchronize(); print("ok", float(w.sum()))
"""


@looks_for("expandable-segments-on-rocm", rank=2, estimate_s=20)
def expandable_segments() -> Symptom:
    """Allocate, copy and capture with expandable segments."""
    conf = "expandable_segments:True"
    return ends_badly(_SEGMENTS, deadline_s=60.0, PYTORCH_ALLOC_CONF=conf, PYTORCH_HIP_ALLOC_CONF=conf)


_IPC: Final = """
import torch, torch.multiprocessing as mp
def take(queue, done):
    for _ in range(10):
        x = queue.get(); x.sum().item(); del x; torch.cuda.ipc_collect(); done.put(1)
if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, done = context.Queue(), context.Queue()
    child = context.Process(target=take, args=(queue, done)); child.start()
    free = []
    for number in range(10):
        x = torch.ones(64 << 20, device="cuda"); queue.put(x); done.get(); del x
        torch.cuda.ipc_collect(); torch.cuda.empty_cache(); free.append(torch.cuda.mem_get_info()[0])
    child.join(30)
    lost = free[2] - free[-1]
    print("lost", lost)
    assert lost < (256 << 20), f"lost {lost}"
"""


@looks_for("ipc-memory-leak", estimate_s=40)
def ipc_leak() -> Symptom:
    """Share and free a tensor of 256 MB between two processes ten times."""
    return ends_badly(_IPC)


@looks_for("legacy-ipc-mode-breaks-rdna", estimate_s=40)
def legacy_ipc() -> Symptom:
    """Share memory between processes with the variable set."""
    status, last = child(_IPC, HSA_ENABLE_IPC_MODE_LEGACY="1")
    shared = status is CheckStatus.OK or last.startswith("AssertionError: lost")  # a leak is another problem
    return Symptom(seen=not shared, detail=f"{status.value}: {last}")


_ARCH: Final = (
    "import torch; p = torch.cuda.get_device_properties(0); print(getattr(p, 'gcnArchName', f'sm_{p.major}{p.minor}'))"
)


@looks_for("gfx-version-override", always=True)
def version_override() -> Symptom:
    """Ask for the architecture with and without the variable."""
    real, pretended = child(_ARCH)[1], child(_ARCH, HSA_OVERRIDE_GFX_VERSION="9.0.6")[1]
    return Symptom(seen=real != pretended, detail=f"{real} without, {pretended} with HSA_OVERRIDE_GFX_VERSION")


_MATMULS: Final = """
import torch
x = torch.randn(2048, 2048, device="cuda")
for _ in range(100):
    y = x @ x
torch.cuda.synchronize(); print("ok")
"""


@looks_for("hipblaslt-forced-on-consumer-gpu", estimate_s=20)
def forced_hipblaslt() -> Symptom:
    """Run 100 matrix products with hipBLASLt preferred."""
    return ends_badly(_MATMULS, TORCH_BLAS_PREFER_HIPBLASLT="1")


@looks_for("second-libamd-smi", rank=4)
def second_library() -> Symptom:
    """Count the copies of libamd_smi in this process after torch has counted the GPUs."""
    import torch

    count = torch.cuda.device_count()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    copies = {line.split()[-1] for line in maps.splitlines() if "libamd_smi" in line}
    return Symptom(seen=len(copies) > 1, detail=f"{count} GPUs, {len(copies)} copies of libamd_smi")


@looks_for("numa-balancing-on", rank=26, estimate_s=15)
def numa_balancing() -> Symptom:
    """Launch kernels for ten seconds, and look for a stall while Linux moves memory."""
    if system_number("/proc/sys/kernel/numa_balancing") <= 0:
        return Symptom(seen=False, detail="automatic NUMA balancing is off")
    before = system_number("/proc/vmstat", "numa_hint_faults")
    stall_ms = longest_launch_ms(10.0)
    faults = system_number("/proc/vmstat", "numa_hint_faults") - before
    detail = f"automatic NUMA balancing is on: {faults} NUMA hint faults, the longest launch took {stall_ms:.1f} ms"
    return Symptom(seen=stall_ms >= _STALL_MS and faults > 0, detail=detail)


def system_number(file: str, name: str = "") -> int:
    """A number that Linux reports; 0 without it."""
    lines = Path(file).read_text(encoding="utf-8").splitlines() if Path(file).exists() else []
    return next((int(line.split()[-1]) for line in lines if line.startswith(f"{name} " if name else "")), 0)


def longest_launch_ms(seconds: float) -> float:
    """The longest time that a launch took the CPU, with a queue that is never full."""
    import torch

    x, longest = torch.zeros(256, device="cuda"), 0.0
    x.add_(1)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        torch.cuda.synchronize()
        for _ in range(200):
            started = time.perf_counter()
            x.add_(1)
            longest = max(longest, time.perf_counter() - started)
    return longest * 1e3


@looks_for("hip-graph-kernels-missing-from-profiles")
def profiled_kernels() -> Symptom:
    """Profile ten replays of a graph of ten kernels, and count."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    x = torch.zeros(1024, device="cuda")
    graph, _ = captured(lambda: [x.add_(1) for _ in range(10)])
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(10):
            graph.replay()
        torch.cuda.synchronize()
    kernels = sum(
        event.count
        for event in profiled.key_averages()
        if "elementwise" in event.key.lower() or "add" in event.key.lower()
    )
    return Symptom(seen=kernels < _PROFILED_KERNELS, detail=f"{kernels} of 100 kernels are in the profile")


_FIRST: Final = """
import time, torch
x = torch.randn(256, 256, device="cuda", dtype=torch.float16)
started = time.perf_counter()
torch.addmm(x[0], x, x); torch.cuda.synchronize()
seconds = time.perf_counter() - started
print(seconds)
assert seconds < 30
"""


@looks_for("hipblaslt-jit-stall-on-rdna", estimate_s=20)
def first_gemm() -> Symptom:
    """Time the first matrix product of a process."""
    return ends_badly(_FIRST)
