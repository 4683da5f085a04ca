"""The same graph takes one of two times on one device; looks for what changes it from one to the other.

    python -m benchmarks.two_states --out evidence/two-states-on-h200.json

Seen on an H200: a graph of 2218 kernels took 8.97 or 9.77 ms, whoever had captured it, with equal kernels. What differs is 0.36 µs for
each kernel of that graph and 0.18 for each of plain ones: either the pauses between them, or the time until the first begins, which
the host spends on the launch. So both are measured here: graphs of plain kernels are replayed after each of many actions, several
times over, with nothing else on the device.
"""

import argparse
import ctypes
import gc
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.measure.clock import clock_here
from rocsolid.measure.evidence import evidence, write
from rocsolid.torchapi.driver import call_named

_REPEATS: Final = 5
_KERNELS: Final = 2000


class Bench:
    """Graphs, and what can be done between their replays."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._clock = clock_here()
        self._small = torch.ones(4, device="cuda")
        self._square = torch.ones(64, 64, device="cuda", dtype=torch.bfloat16)
        self._large = torch.ones(2048, 2048, device="cuda", dtype=torch.bfloat16)
        self._out = torch.empty_like(self._square)
        self.many()
        self._large @ self._large
        self._graphs = {"additions": self._captured(self.many), "products": self._captured(self._products)}
        self._tiny = self._captured(self._add)
        self._side = torch.cuda.Stream()

    def _captured(self, body: Callable[[], object]) -> Any:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
        return graph

    def _add(self) -> None:
        self._small.add_(1)

    def many(self) -> None:
        """Plain kernels, one after the other."""
        for _ in range(_KERNELS):
            self._small.add_(1)

    def _products(self) -> None:
        for _ in range(_KERNELS // 2):
            torch.mm(self._square, self._square, out=self._out)

    def _on(self, stream: Any, body: Callable[[], object]) -> None:
        with torch.cuda.stream(stream):
            body()
        torch.cuda.synchronize()

    def _replay_all(self) -> None:
        for graph in self._graphs.values():
            graph.replay()

    def actions(self) -> dict[str, Callable[[], object]]:
        """Each may change how fast a graph is replayed afterwards."""
        new, keep = torch.cuda.Stream, self._kept.append
        return {
            "nothing": lambda: None,
            "a pause": lambda: time.sleep(0.2),
            "one kernel": self._add,
            "many kernels": self.many,
            "one product": lambda: torch.mm(self._square, self._square, out=self._out),
            "a large product": lambda: self._large @ self._large,
            "new memory": lambda: keep(torch.empty(64 << 20, dtype=torch.int8, device="cuda")),
            "memory given back": torch.cuda.empty_cache,
            "a new stream, one kernel without new memory": lambda: self._on(new(), self._add),
            "a new stream, many kernels": lambda: self._on(new(), self.many),
            "a new stream, a tensor": lambda: self._on(new(), lambda: keep(torch.ones(4, device="cuda"))),
            "a new stream, a product": lambda: self._on(new(), lambda: self._square @ self._square),
            "another graph captured": lambda: keep(self._captured(self._add)),
            "another graph replayed": self._tiny.replay,
            "these graphs on another stream": lambda: self._on(self._side, self._replay_all),
            "these graphs uploaded": self._upload,
            "an event": lambda: torch.cuda.Event(enable_timing=True).record(),
            "garbage collected": gc.collect,
        }

    def _upload(self) -> None:
        """Each graph once more into the stream on which it will be replayed."""
        for graph in self._graphs.values():
            stream = torch.cuda.current_stream().cuda_stream
            done = call_named("GraphUpload")(ctypes.c_void_p(graph.raw_cuda_graph_exec()), ctypes.c_void_p(stream))
            if done:
                msg = f"the upload of a graph failed with {done}"
                raise RuntimeError(msg)

    def times(self) -> dict[str, dict[str, float]]:
        """Milliseconds of each graph on the device, and of the host in its launch."""
        return {
            name: {"device": self._median(graph.replay), "host": self._launch_ms(graph.replay)}
            for name, graph in self._graphs.items()
        }

    def _median(self, call: Callable[[], Any]) -> float:
        call()
        return round(statistics.median(self._clock.sample(call, 1) for _ in range(5)), 4)

    def _launch_ms(self, call: Callable[[], Any]) -> float:
        spent = []
        for _ in range(5):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            call()
            spent.append((time.perf_counter() - begun) * 1e3)
        return round(statistics.median(spent), 4)


def main() -> None:
    """Every action in random order, several times; a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the record here")
    args = parser.parse_args()
    order = random.Random(0)  # noqa: S311 - an order, no secret
    seen: list[tuple[str, dict[str, dict[str, float]]]] = []
    with torch.no_grad():
        bench = Bench()
        for _ in range(_REPEATS):
            actions = list(bench.actions().items())
            order.shuffle(actions)
            for name, act in actions:
                act()
                torch.cuda.synchronize()
                seen.append((name, bench.times()))
    for name, times in seen:
        print(f"{name:45s} {json.dumps(times)}")
    if args.out:
        found = evidence(
            what="two graphs replayed after actions in random order, in milliseconds",
            command="python -m benchmarks.two_states",
            steps=[{"after": name, **times} for name, times in seen],
        )
        write(found, args.out)


if __name__ == "__main__":
    main()
