"""Find out what makes a process replay its graphs more slowly from then on: a few kernels on a side stream.

    python -m benchmarks.two_states --models bert resnet50 --out evidence/two-states-on-h200.json

Each action runs in its own process. A graph of 2000 small additions is replayed before and after the action. With `--models`, whole
models are captured in eager, too: warmed up on a side stream as torch's recipe does, warmed up on the current stream, and by
`rs.capture`.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import torch

from rocsolid.measure.evidence import evidence, write
from rocsolid.torchapi.graphs.driver_api import driver_function

_KERNELS: Final = 2000
_REPLAYS: Final = 9
_WAYS: Final = ("warmed up on a side stream", "warmed up on the current stream", "rs.capture")


class Actions:
    """The actions between two replays."""

    def __init__(self) -> None:
        self._small = torch.ones(4, device="cuda")
        self._kept: list[Any] = []
        self.launch(10)

    def launch(self, times: int) -> None:
        """Kernels on the current stream."""
        for _ in range(times):
            self._small.add_(1)

    def on_other_streams(self, times: int, streams: int = 1) -> None:
        """Kernels on other streams."""
        for _ in range(streams):
            with torch.cuda.stream(torch.cuda.Stream()):
                self.launch(times)

    def in_order(self, times: int) -> None:
        """Kernels on a stream that waits for the default one, and that one for it."""
        create, made = driver_function("StreamCreate"), ctypes.c_void_p()
        if create is None or create(ctypes.byref(made), 0):
            msg = "the driver cannot create a blocking stream"
            raise RuntimeError(msg)
        with torch.cuda.stream(torch.cuda.ExternalStream(made.value)):
            self.launch(times)

    def copy(self, times: int) -> None:
        """Copies within the device, on another stream."""
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(times):
                self._small.copy_(torch.empty_like(self._small))

    def replay(self, times: int) -> None:
        """Replays of another graph, on another stream."""
        graph = self.captured(3)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(times):
                graph.replay()

    def wait(self, times: int) -> None:
        """Streams that wait for each other."""
        one, other = torch.cuda.current_stream(), torch.cuda.Stream()
        for _ in range(times):
            one.wait_stream(other)
            other.wait_stream(one)

    def capture(self, times: int) -> None:
        """Captures with torch.cuda.graph."""
        for _ in range(times):
            self._kept.append(self.captured(50))

    def our_capture(self, times: int) -> None:
        """Functions captured by `rs.capture`."""
        import rocsolid as rs

        x = torch.ones(64, 64, device="cuda")
        for _ in range(times):
            fast = rs.capture(lambda x: (x @ x + 1).relu())
            self._kept += [fast, fast(x), fast(x)]

    def captured(self, kernels: int) -> Any:
        """A graph with so many additions."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.launch(kernels)
        return graph


ACTIONS: Final[dict[str, Callable[[Actions], None]]] = {
    "nothing": lambda _: None,
    "5000 kernels on the default stream": lambda do: do.launch(5000),
    "4 kernels on another stream": lambda do: do.on_other_streams(4),
    "8 kernels on another stream": lambda do: do.on_other_streams(8),
    "8 kernels on a stream in order with the default one": lambda do: do.in_order(8),
    "4 kernels on each of 30 streams": lambda do: do.on_other_streams(4, streams=30),
    "20 copies on another stream": lambda do: do.copy(20),
    "500 replays on another stream": lambda do: do.replay(500),
    "500 waits between streams": lambda do: do.wait(500),
    "10 captures by torch.cuda.graph": lambda do: do.capture(10),
    "1 function captured by rs.capture": lambda do: do.our_capture(1),
    "2 functions captured by rs.capture": lambda do: do.our_capture(2),
    "30 functions captured by rs.capture": lambda do: do.our_capture(30),
}


def _median_ms(call: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    call()
    for _ in range(_REPLAYS):
        torch.cuda.synchronize()
        begin.record()
        call()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end))
    return round(float(statistics.median(taken)), 4)


def _run_action(name: str) -> dict[str, float]:
    do = Actions()
    graph = do.captured(_KERNELS)
    before = _median_ms(graph.replay)
    ACTIONS[name](do)
    torch.cuda.synchronize()
    return {"before_ms": before, "after_ms": _median_ms(graph.replay)}


def _model(name: str, way: str) -> dict[str, float]:
    import rocsolid as rs
    from benchmarks.models import built_on

    model, inputs = built_on(name, "cuda", "bfloat16")
    if way == "rs.capture":
        fast = rs.capture(model, outputs="alias")
        fast(*inputs)
        own = fast.inputs(*inputs)
        return {"ms": _median_ms(lambda: fast(*own))}
    side_stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side_stream) if way == "warmed up on a side stream" else nullcontext():
        for _ in range(3):
            model(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(*inputs)
    return {"ms": _median_ms(graph.replay)}


def _in_process(*names: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.two_states", "--one", *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{', '.join(names):48s} {figures}", flush=True)
    return figures


def main() -> None:
    """Run all processes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[], metavar="MODEL")
    parser.add_argument("--out", type=Path, help="write the record here")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        with torch.no_grad():
            print(json.dumps(_model(*args.one) if args.one[-1] in _WAYS else _run_action(*args.one)))
        return
    record = evidence(
        what=f"a graph of {_KERNELS} additions before and after something was done, and models in graphs of eager",
        command=" ".join(["python -m benchmarks.two_states", *(["--models", *args.models] if args.models else [])]),
        deeds={name: _in_process(name) for name in ACTIONS},
        models={name: {way: _in_process(name, way) for way in _WAYS} for name in args.models},
    )
    if args.out:
        write(record, args.out)


if __name__ == "__main__":
    main()
