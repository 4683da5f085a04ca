"""Compare methods on public models: each method in its own process, interleaved rounds; writes a table, a plot and the record.

    python -m benchmarks.run --out evidence/models-on-h200.json
    python -m benchmarks.run --device cpu --models bert gpt2 --methods eager compile rs.optimize
    python -m benchmarks.run --draw evidence/models-on-h200.json docs/generated/models.svg

The processes of a group are set up at the same time, all or `--at-once` of them, so set-up times are longer than they would be
alone. They are measured one at a time while the others wait. Results are written after every group, so that little is lost when a
run is stopped.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.draw import drawn, table
from rocsolid.measure.evidence import evidence, write

_CALLS = 5  # per round


class BenchmarkProcess:
    """The process of one model with one method (see `benchmarks.cell`)."""

    module = "benchmarks.cell"

    def __init__(self, model: str, method: str, device: str, dtype: str) -> None:
        self.model, self.method = model, method
        self._device, self._dtype = device, dtype
        self._process: subprocess.Popen[str] | None = None
        self.arguments: list[str] = []
        self.about: dict[str, Any] = {"failed": "not started in time"}
        self.rounds: list[float] = []

    def begin(self) -> None:
        """Start it."""
        device = self._device
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, self.model, self.method, *(self.arguments or (device, self._dtype))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env=dict(os.environ)
            if device == "cuda"
            else {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""},
        )

    def wait(self, deadline: float) -> None:
        """Wait until it is set up, or until the deadline."""
        line = self._line(deadline)
        self.about = (
            json.loads(line) if line else {"failed": "not set up in time" if line is None else "ended without a result"}
        )
        if "failed" in self.about:
            self.stop()

    def fileno(self) -> int:
        """The file descriptor of its output, for `select`."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def usable(self) -> bool:
        """Whether it can be measured."""
        return "failed" not in self.about

    def measure(self, deadline: float) -> None:
        """Measure one round."""
        self.ask("", deadline)

    def ask(self, clock: str, deadline: float) -> None:
        """Measure one round by a clock of the process: "" or "wall "."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(f"{clock}{_CALLS}", file=self._process.stdin, flush=True)
        line = self._line(deadline)
        if line:
            self.rounds.append(statistics.median(json.loads(line)))
        else:
            self.about = {**self.about, "failed": "ended or hung while it was measured"}
            self.stop()

    def count_kernels(self, deadline: float) -> None:
        """Add the number of kernels of a call, and how long they take."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print("kernels", file=self._process.stdin, flush=True)
        line = self._line(deadline)
        self.about |= json.loads(line) if line else {}

    def _line(self, deadline: float) -> str | None:
        """Its next line; empty when it has ended, None at the deadline."""
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self], [], [], max(0.0, deadline - time.monotonic()))
        return self._process.stdout.readline() if ready else None

    def stop(self) -> None:
        """End it and all its children."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def record(self) -> dict[str, Any]:
        """Its results."""
        found = dict(self.about)
        if self.rounds:
            ordered = sorted(self.rounds)
            cut = len(ordered) // 6
            found |= {
                "median_ms": round(statistics.median(ordered), 4),
                "from_to_ms": [round(ordered[cut], 4), round(ordered[-1 - cut], 4)],
                "rounds_ms": [round(value, 4) for value in self.rounds],
            }
        return found


def measured(
    models: Sequence[str], methods: Sequence[str], args: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Set up a group of models and measure them one after the other."""
    cells = {name: [BenchmarkProcess(name, method, args.device, args.dtype) for method in methods] for name in models}
    every = [cell for group in cells.values() for cell in group]
    try:
        _set_up(every, args.at_once or len(every), time.monotonic() + args.deadline)
        for name, group in cells.items():
            rng = random.Random(0)  # noqa: S311 - not used for security
            for _ in range(args.rounds):
                usable = [cell for cell in group if cell.usable]
                rng.shuffle(usable)
                for cell in usable:
                    cell.measure(time.monotonic() + 60)
            for cell in group:
                cell.stop()
            yield name, {cell.method: cell.record() for cell in group}
    finally:
        for cell in every:
            cell.stop()


def _set_up(cells: Sequence[BenchmarkProcess], at_once: int, deadline: float) -> None:
    """Set up `at_once` cells at a time, until all are set up or the deadline passes."""
    waiting, busy = list(cells), list[BenchmarkProcess]()
    while waiting or busy:
        while waiting and len(busy) < at_once:
            busy.append(waiting.pop(0))
            busy[-1].begin()
        ready, _, _ = select.select(busy, [], [], max(0.0, deadline - time.monotonic()))
        for cell in ready or tuple(busy):
            cell.wait(deadline)
            busy.remove(cell)
        if not ready:
            return


def versions(args: argparse.Namespace) -> dict[str, str]:
    """Device, torch version and Python version."""
    import torch

    device = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or platform.machine()
    return {"device": device, "torch": torch.__version__, "python": platform.python_version()}


def main() -> None:
    """Run, or draw an existing record."""
    from benchmarks.cell import METHODS
    from benchmarks.models import MODELS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--together", type=int, default=1, help="models that are set up at the same time")
    parser.add_argument(
        "--at-once", type=int, default=0, help="processes that are set up at the same time (default: all)"
    )
    parser.add_argument("--deadline", type=float, default=600, help="seconds for a group to be set up")
    parser.add_argument("--out", type=Path, help="write the record here")
    parser.add_argument(
        "--draw", nargs=2, type=Path, metavar=("RECORD", "SVG"), help="draw a record and print its table"
    )
    args = parser.parse_args()
    if args.draw:
        record = json.loads(args.draw[0].read_text(encoding="utf-8"))
        args.draw[1].write_text(drawn(record), encoding="utf-8")
        print(table(record))
        return
    record = evidence(
        what="public models with random weights, batch 1, with every method, in interleaved rounds",
        command=" ".join(["python -m benchmarks.run", *sys.argv[1:]]),
        **versions(args),
        dtype=args.dtype,
        set_up_together=args.at_once or args.together * len(args.methods),
        models={},
    )
    for at in range(0, len(args.models), args.together):
        for name, found in measured(args.models[at : at + args.together], args.methods, args):
            record["models"][name] = found
            line = "  ".join(f"{m} {f.get('median_ms') or f.get('failed', '')}" for m, f in found.items())
            print(f"{name:22s} {line}  [{found.get('rs.optimize', {}).get('chosen', '')}]", flush=True)
        if args.out:
            write(record, args.out)
    print(table(record))


if __name__ == "__main__":
    main()
