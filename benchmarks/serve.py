"""Measure the requests of a server while `rs.optimize(progressive=True)` compiles its model in the background.

    python -m benchmarks.serve --out evidence/serve-on-h200.json

One thread makes requests without a pause: first of the plain model, then of the optimized one until the background work has ended, then
some more. A request is one call, and on a GPU its results are waited for.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch

import rocsolid as rs
from rocsolid.measure.evidence import evidence, write

_EAGER_S: Final = 5.0
_MAX_LISTED: Final = 10  # of the slow requests
_AFTER_S: Final = 2.0


class Block(torch.nn.Module):  # type: ignore[misc]
    """A layer of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, width // 64, batch_first=True)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)])

    def forward(self, x: Any) -> Any:
        """Return attention and MLP, each added to the input."""
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


def requests(call: Callable[[Any], Any], x: Any, until: Callable[[float], bool]) -> Iterator[float]:
    """Call and yield the seconds that each call took, until `until(elapsed seconds)`."""
    begun = time.perf_counter()
    while not until(time.perf_counter() - begun):
        started = time.perf_counter()
        call(x)
        if x.is_cuda:
            torch.cuda.current_stream().synchronize()  # as reading the result does
        yield time.perf_counter() - started


def summary(times: Sequence[float]) -> dict[str, float]:
    """Return the number, median, 95th percentile and maximum, in ms."""
    ordered = sorted(1e3 * s for s in times)
    return {
        "requests": len(ordered),
        "median_ms": statistics.median(ordered),
        "p95_ms": ordered[int(0.95 * (len(ordered) - 1))],
        "max_ms": ordered[-1],
    }


def measure(layers: int, width: int, tokens: int) -> dict[str, Any]:
    """Return the requests of the plain model, while it is compiled, and afterwards."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(*(Block(width) for _ in range(layers))).eval().to(device)
    x = torch.randn(1, tokens, width, device=device)
    with torch.no_grad():
        list(requests(model, x, lambda elapsed: elapsed > 1))  # warm up
        eager = list(requests(model, x, lambda elapsed: elapsed > _EAGER_S))
        fast = rs.optimize(model, x, progressive=True)
        begun = time.perf_counter()
        during = list(requests(fast, x, lambda _: fast.wait(0)))
        seconds = time.perf_counter() - begun
        after = list(requests(fast, x, lambda elapsed: elapsed > _AFTER_S))
    limit = 2 * statistics.median(eager)
    return {
        "eager": summary(eager),
        "while compiling": summary(during),
        "afterwards": summary(after),
        "compile_s": seconds,
        "above_twice_eager": sum(s > limit for s in during),
        "slow_requests": [
            {"after_s": sum(during[:index]), "ms": 1e3 * s} for index, s in enumerate(during) if s > limit
        ][:_MAX_LISTED],
        "chosen": fast.report().chosen_label,
    }


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    facts = measure(options.layers, options.width, options.tokens)
    for name, value in facts.items():
        print(f"{name}: {value}")
    if options.out:
        write(evidence(what=__doc__.partition("\n")[0], command="python -m benchmarks.serve", facts=facts), options.out)


if __name__ == "__main__":
    from benchmarks.serve import main as run

    run()  # of the module with this name, so that a child process finds the class of the model
