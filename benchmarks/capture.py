"""What a captured call costs and gains, compared with what torch offers, on one GPU in one run.

    python -m benchmarks.capture host --out evidence/capture-host-cost.json
    python -m benchmarks.capture denoiser
    python -m benchmarks.capture lengths

`host` measures the CPU time of the call itself with the GPU idle before it; times of whole calls are GPU events.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import rocsolid as rs
from benchmarks.denoiser import Encoder, Expert
from rocsolid.measure.clock import select_clock
from rocsolid.measure.evidence import evidence, write
from rocsolid.measure.race import race

_COUNTS = (1, 8, 32, 128)
_ROUNDS = 7
_HAND = "compiled, captured by hand"
_OWN = "compiled, captured by rs.capture, its own buffers"


def host_us(call: Callable[[], Any], times: int = 100) -> float:
    """Return the median CPU time of a call in microseconds; the GPU is idle when the call begins."""
    for _ in range(20):
        call()
    spent = []
    for _ in range(times):
        torch.cuda.synchronize()
        begun = time.perf_counter_ns()
        call()
        spent.append(time.perf_counter_ns() - begun)
    return statistics.median(spent) / 1e3


def device_ms(call: Callable[[], Any], times: int = 30) -> float:
    """Return the median time of a call in milliseconds, measured with GPU events."""
    for _ in range(5):
        call()
    clock = select_clock()
    return float(statistics.median(clock.sample(call, 1) for _ in range(times)))


def by_hand(function: Callable[..., Any], inputs: Sequence[Any], warmups: int = 3) -> tuple[Any, Any]:
    """Capture a graph by hand as in torch's docs; returns the graph and its output."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warmups):
            function(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        output = function(*inputs)
    return graph, output


def small(*tensors: Any) -> Any:
    """Little work on many inputs."""
    return torch.stack(tensors).sum(0)


def host_cost() -> dict[str, dict[str, float]]:
    """CPU microseconds of one call, for 1 to 128 inputs."""
    table: dict[str, dict[str, float]] = {}
    for count in _COUNTS:
        torch._dynamo.reset()
        ways = ways_to_call([torch.randn(16, device="cuda") for _ in range(count)])
        rounds: dict[str, list[float]] = {}
        for _ in range(_ROUNDS):  # interleaved, so that a slow moment of the CPU affects all alike
            for name, call in ways.items():
                rounds.setdefault(name, []).append(host_us(call))
        for name, found in rounds.items():
            table.setdefault(name, {})[str(count)] = round(statistics.median(found), 2)
        print(f"{count} inputs measured", flush=True)
    table["ratio of alias to foreach copy + replay"] = ratio(table, "rs.capture alias", "foreach copy + replay")
    table["ratio of reduce-overhead to alias"] = ratio(table, "reduce-overhead", "rs.capture alias")
    return table


def ratio(table: dict[str, dict[str, float]], one: str, other: str) -> dict[str, float]:
    """One time divided by another, for each number of inputs."""
    return {count: round(value / table[other][count], 2) for count, value in table[one].items()}


def ways_to_call(given: list[Any]) -> dict[str, Callable[[], Any]]:
    """One small function of these tensors, called in every way that is compared."""
    statics = [torch.empty_like(x) for x in given]
    graph, output = by_hand(small, statics)

    def copied() -> None:
        torch._foreach_copy_(statics, given)
        graph.replay()

    def looped() -> Any:
        for static, x in zip(statics, given, strict=True):
            static.copy_(x)
        graph.replay()
        return output.clone()

    alias, clone, lent = rs.capture(small, outputs="alias"), rs.capture(small), rs.capture(small, outputs="alias")
    for fast in (alias, clone, lent):
        fast(*given)
    buffers = lent.inputs(*given)
    graphed = torch.cuda.make_graphed_callables(_Small(), tuple(x.clone() for x in given))
    reduced, compiled = torch.compile(small, mode="reduce-overhead"), torch.compile(small)
    return {
        "bare replay": graph.replay,
        "foreach copy + replay": copied,
        "copy loop + replay + clone": looped,
        "make_graphed_callables": lambda: graphed(*given),
        "reduce-overhead": lambda: reduced(*given),
        "compiled": lambda: compiled(*given),
        "rs.capture alias": lambda: alias(*given),
        "rs.capture clone": lambda: clone(*given),
        "rs.capture alias, its own buffers": lambda: lent(*buffers),
    }


class _Small(nn.Module):  # type: ignore[misc]
    def forward(self, *tensors: Any) -> Any:
        """Call the function."""
        return small(*tensors)


def denoiser() -> dict[str, float]:
    """Milliseconds for ten steps, and the ratio to the kernels' own time."""
    torch.manual_seed(0)
    expert = Expert().cuda().bfloat16().eval()
    prefix = [torch.randn(18, 1, 8, 800, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    noise = torch.randn(1, 50, 1024, device="cuda", dtype=torch.bfloat16)
    steps = torch.linspace(1, 0.1, 10, device="cuda", dtype=torch.bfloat16).view(10, 1, 1, 1)

    def loop(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(noise: Any, keys: Any, values: Any) -> Any:
            for number in range(10):
                noise = noise - 0.1 * step(noise, steps[number], keys, values)
            return noise

        return run

    compiled = torch.compile(expert)
    plain, whole = loop(expert), loop(compiled)
    whole(noise, *prefix)
    statics = [noise.clone(), *(p.clone() for p in prefix)]
    hand, _ = by_hand(whole, statics)
    begun = time.perf_counter()
    ours = rs.capture(whole, outputs="alias")
    ours(noise, *prefix)
    setup = time.perf_counter() - begun
    own_result = ours(noise, *prefix).clone()
    own = ours.inputs(noise, *prefix)
    eager_graph = rs.capture(plain, outputs="alias")
    eager_graph(noise, *prefix)
    # Interleaved, in another order each time: a GPU that was idle a moment ago ran the same graph 8 % faster here.
    raced = race(
        {
            _HAND: hand.replay,
            "compiled, captured by rs.capture": lambda: ours(noise, *prefix),
            _OWN: lambda: ours(*own),
            "eager, captured by rs.capture": lambda: eager_graph(noise, *prefix),
        },
        rounds=60,
    )
    rounds = {name: list(samples) for name, samples in raced.samples_ms.items()}
    for name, call in (("eager", plain), ("compiled step", whole)):
        rounds[name] = [device_ms(lambda call=call: call(noise, *prefix), 15)]  # type: ignore[misc]
    kernels = kernel_ms(hand.replay)
    # Last, because it frees the workspace of the hand-made graph, whose next replay would end the process.
    reduced = loop(torch.compile(expert, mode="reduce-overhead"))
    rounds["reduce-overhead per step"] = [device_ms(lambda: reduced(noise, *prefix), 15)]
    again = ours(noise, *prefix)
    if not torch.equal(again, own_result):
        sys.exit("the captured call returns another result after reduce-overhead has captured")
    table = {name: round(statistics.median(times), 4) for name, times in rounds.items()}
    print(json.dumps(table), flush=True)
    table["kernels of one replay"] = round(kernels, 4)
    table["set-up of rs.capture, s"] = round(setup, 2)
    table["graph nodes"] = ours.report().graphs[0].nodes or 0
    table["by hand compared with itself"] = round(1 / raced.against_baseline(_HAND).speedup, 4)
    table["ratio to by hand"] = round(1 / raced.against_baseline(_OWN).speedup, 4)
    table["ratio to by hand, with copies"] = round(
        1 / raced.against_baseline("compiled, captured by rs.capture").speedup, 4
    )
    table["ratio to its kernels"] = round(table[_OWN] / kernels, 4)
    return table


def kernel_ms(call: Callable[[], Any]) -> float:
    """The sum of the kernels' own times in one call."""
    from torch.profiler import ProfilerActivity, profile

    os.environ["TEARDOWN_CUPTI"] = "0"  # a second start of the profiler ended the process when there were graphs
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    spent = sum(
        event.device_time_total for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA
    )
    return float(spent) / 1e3


def lengths() -> dict[str, list[float]]:
    """Seconds for 300 requests of changing length, in three passes."""
    torch.manual_seed(0)
    sizes = torch.randint(1, 513, (300,)).tolist()
    requests = [
        (torch.randint(1, 1000, (1, n), device="cuda"), torch.ones(1, n, dtype=torch.bool, device="cuda"))
        for n in sizes
    ]
    model = Encoder().cuda().bfloat16().eval()
    bucket = rs.Bucket.multiples_of(64, 512, dim=1)
    masked = rs.Bucket.multiples_of(64, 512, dim=1, pad=0)
    ways: dict[str, Callable[[], Callable[..., Any]]] = {
        "eager": lambda: model,
        "compile dynamic": lambda: torch.compile(model, dynamic=True),
        "reduce-overhead dynamic": lambda: torch.compile(model, dynamic=True, mode="reduce-overhead"),
        "rs.capture, buckets of 64, eager": lambda: rs.capture(model, buckets={"ids": bucket, "mask": masked}),
        "rs.capture, buckets of 64, compiled": lambda: rs.capture(
            torch.compile(model, dynamic=False), buckets={"ids": bucket, "mask": masked}
        ),
    }
    table: dict[str, list[float]] = {}
    for name, make in ways.items():
        torch._dynamo.reset()
        run = make()
        for _ in range(3):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for request in requests:
                run(*request)
            torch.cuda.synchronize()
            table.setdefault(name, []).append(round(time.perf_counter() - begun, 3))
        if hasattr(run, "report"):
            print(run.report(), flush=True)
    return table


def main() -> None:
    """Run one part, print it, and write it to --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("host", "denoiser", "lengths"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with torch.no_grad():
        figures: Any = {"host": host_cost, "denoiser": denoiser, "lengths": lengths}[args.part]()
    for name, value in figures.items():
        print(f"{name:52s} {value}")
    if args.out:
        command = f"python -m benchmarks.capture {args.part}"
        write(evidence(what=f"capture: {args.part}", command=command, figures=figures), args.out)


if __name__ == "__main__":
    main()
