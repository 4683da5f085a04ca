"""Checks that time something on the GPU: launches, nodes of a graph, copies, replays, a whole call, autotuning, six models."""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from rocsolid.model.environment import CheckStatus
from rocsolid.process.run_command import Command, module_command, run_with_deadline
from rocsolid.prove.check import CannotDecide, Seen, Task, check, plain
from rocsolid.prove.problems import differs

if TYPE_CHECKING:
    import torch

_LAUNCHES: Final = 2000
_US: Final = 1e6
_LAUNCH_LIMITS_US: Final = (1.0, 50.0)
_SLOWER: Final = 1.05
_MODEL_LAYERS: Final = 24
_METHODS: Final = ("eager", "reduce-overhead", "rs.optimize")
_MODEL_DEADLINE_S: Final = 90.0


@check(
    "cost",
    "the statement about time holds for a small program on this machine",
    rank=40,
    estimate_s=20,
    deadline_s=240,
    gpu=True,
)
def cost(task: Task) -> Seen:
    """Measure what the claim is about, and decide."""
    return _COSTS[task.argument]()


def host_us(work: Callable[[], object], count: int = 1) -> float:
    """Return the CPU time of one call in microseconds: the median of seven, each with an idle GPU before it."""
    import torch

    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * _US / count)
    torch.cuda.synchronize()
    return statistics.median(times[1:])


def graph_of(kernels: int) -> "torch.cuda.CUDAGraph":
    """Capture a chain of small kernels."""
    import torch

    x = torch.zeros(256, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(kernels):
            x.add_(1)
    return graph


def launch_us() -> float:
    """The CPU time of one launch."""
    import torch

    x = torch.zeros(256, device="cuda")
    return host_us(lambda: [x.add_(1) for _ in range(_LAUNCHES)], _LAUNCHES)


def replay_us(graph: Any) -> float:
    """The time of a replay on the GPU, without its launch."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(10):
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return float(statistics.median(times[1:]))


def judge_launch(us: float) -> Seen:
    """Whether the cost is in the stated range."""
    low, high = _LAUNCH_LIMITS_US
    return Seen(holds=low <= us <= high, detail=f"{us:.2f} us per launch", values={"launch_us": round(us, 3)})


def judge_faster(new: str, new_us: float, old: str, old_us: float, **more: float) -> Seen:
    """Whether the first takes less time than the second."""
    values = {f"{new} us": round(new_us, 3), f"{old} us": round(old_us, 3), **more}
    return Seen(holds=new_us < old_us, detail=f"{new} {new_us:.2f} us, {old} {old_us:.2f} us", values=values)


def judge_states(before_us: float, after_us: float) -> Seen:
    """Whether the second replay is slower by more than the noise."""
    values = {"before us": round(before_us, 2), "after us": round(after_us, 2)}
    detail = f"{before_us:.0f} us before, {after_us:.0f} us after"
    return Seen(holds=after_us > before_us * _SLOWER, detail=detail, values=values)


def _graph_node() -> Seen:
    graph = graph_of(_LAUNCHES)
    graph.replay()
    on_gpu = round(replay_us(graph) / _LAUNCHES, 3)
    return judge_faster("a node", host_us(graph.replay) / _LAUNCHES, "a launch", launch_us(), gpu_us_per_node=on_gpu)


def _copy() -> Seen:
    import torch

    from rocsolid.torchapi.graphs.batched_copy import make_batched_copy

    sources = [torch.randn(64, device="cuda") for _ in range(32)]
    targets = [torch.zeros_like(source) for source in sources]
    grouped = make_batched_copy(targets)
    grouped(sources)
    if not all(torch.equal(target, source) for target, source in zip(targets, sources, strict=True)):
        return Seen(holds=False, detail="the grouped copy copied something else")

    def one_by_one() -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)

    return judge_faster("grouped", host_us(lambda: grouped(sources)), "one by one", host_us(one_by_one))


def _replay_states() -> Seen:
    import torch

    x = torch.zeros(4, device="cuda")
    for _ in range(10):
        x.add_(1)
    graph = graph_of(_LAUNCHES)

    before = replay_us(graph)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(8):
            x.add_(1)
    torch.cuda.synchronize()
    return judge_states(before, replay_us(graph))


def _whole_call() -> Seen:
    import torch

    import rocsolid as rs

    torch.manual_seed(0)
    layers = [m for _ in range(_MODEL_LAYERS) for m in (torch.nn.Linear(128, 128), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).cuda().half().eval()
    x = torch.randn(4, 128, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        fast = rs.capture(model)
        same = not any(differs(fast(x), model(x)) for x in (x, x * 2, x - 1))

        def timed(call: Callable[..., object]) -> float:
            def run() -> None:
                for _ in range(20):
                    call(x)
                torch.cuda.synchronize()

            return host_us(run, 20)

        seen = judge_faster("captured", timed(fast), "eager", timed(model))
    return seen if same else Seen(holds=False, detail="the captured call returned other values than eager")


_COMPILE: Final = """
import time, torch
x = torch.randn(256, 256, device="cuda", dtype=torch.float16)
started = time.perf_counter()
with torch.no_grad():
    torch.compile(lambda x: torch.relu(x @ x).sum(-1), mode="{mode}")(x)
torch.cuda.synchronize()
print("SECONDS", time.perf_counter() - started)
"""


def _autotune() -> Seen:
    default, tuned = (_compile_seconds(mode) for mode in ("default", "max-autotune-no-cudagraphs"))
    return judge_faster("default", default * _US, "max-autotune", tuned * _US)


def _compile_seconds(mode: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
        done = run_with_deadline(
            Command(
                name=mode,
                command=[sys.executable, "-c", _COMPILE.format(mode=mode)],
                deadline_s=110.0,
                env={**os.environ, **caches},
            )
        )
    if done.check.status is not CheckStatus.OK:
        msg = f"the compile with mode {mode} {done.check.status.value}: {done.check.detail}"
        raise CannotDecide(msg)
    return float(done.stdout.split("SECONDS")[1])


@check(
    "model",
    "rs.optimize returns what eager returns, and is not slower than torch.compile with mode reduce-overhead",
    rank=60,
    estimate_s=70,
    deadline_s=300,
    gpu=True,
)
def model(task: Task) -> Seen:
    """Time a model with each method, in processes of their own."""
    return judge_model({method: _measured(task.argument, method) for method in _METHODS})


def judge_model(measured: Mapping[str, Mapping[str, Any]]) -> Seen:
    """Compare time and results."""
    ours, theirs = measured["rs.optimize"], measured["reduce-overhead"]
    values = {f"{method} {what}": plain(value) for method, row in measured.items() for what, value in row.items()}
    times = ", ".join(f"{method} {row['ms']:.3f} ms" for method, row in measured.items())
    right = not ours["differs"]
    return Seen(
        holds=right and ours["ms"] <= theirs["ms"] * _SLOWER,
        detail=times if right else f"the results differ from eager's; {times}",
        values=values,
    )


def _measured(name: str, method: str) -> dict[str, Any]:
    command = Command(
        name=method,
        command=module_command("rocsolid.prove.models", name, method),
        deadline_s=_MODEL_DEADLINE_S,
        env=dict(os.environ),
    )
    done = run_with_deadline(command)
    if done.check.status is not CheckStatus.OK:
        msg = f"{method} {done.check.status.value}: {done.check.detail}"
        raise CannotDecide(msg)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


_COSTS: Final = {
    "launch": lambda: judge_launch(launch_us()),
    "graph-node": _graph_node,
    "copy": _copy,
    "replay-states": _replay_states,
    "whole-call": _whole_call,
    "autotune": _autotune,
}
