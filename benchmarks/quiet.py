"""Measure methods one process at a time: nothing else runs while a method is measured.

    python -m benchmarks.quiet --models bert resnet50 --out evidence/quiet-on-h200.json
    python -m benchmarks.quiet --cold --models bert ten_step_denoiser
    python -m benchmarks.quiet --draw evidence/quiet-on-h200.json docs/assets/speed-up.svg

`benchmarks.run` keeps the processes of many models alive side by side, which slows down everything that is bound by the CPU.
Here a process starts, warms up, is measured and ends before the next one starts; methods take turns, and every method has
several processes. A first pass fills the compile caches, several processes at once, and is not measured. With `--cold` there is no
such pass, every process has empty caches, and its set-up time is what a user waits the first time.

A time is that of one call, from an idle GPU to the result. The record also has the number of kernels of a call, how long they take
without gaps, and the least time that the weights and FLOPs need on this GPU. Before each process the host is watched: if other
processes, the hypervisor or a low frequency disturb it, the record is not written, unless `--busy` is set.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from html import escape
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks import cell
from benchmarks.host import HostState, host_state
from benchmarks.run import BenchmarkProcess, versions
from rocsolid.measure.evidence import evidence, write

BY_HAND: Final = "graph by hand"
METHODS: Final = ("eager", "reduce-overhead", BY_HAND, "rs.optimize")


def graph_by_hand(model: Callable[..., Any], inputs: tuple[Any, ...], _: object) -> Callable[..., Any]:
    """`torch.compile` and `torch.cuda.graph`, as short as possible: it always replays the example inputs, and copies and checks nothing."""
    compiled = torch.compile(model)
    for _ in range(3):
        compiled(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(*inputs)

    def replay(*_: object) -> Any:
        graph.replay()
        return result

    return replay


class QuietCell(BenchmarkProcess):
    """A process of this module instead of `benchmarks.cell`, which does not know the graph by hand."""

    module = "benchmarks.quiet"


def measure(models: Sequence[str], args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Median milliseconds of every method, over all of its processes."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {name: {m: [] for m in args.methods} for name in models}
    for number in range(args.processes):
        for name in models:
            turn = number % len(args.methods)
            for method in (*args.methods[turn:], *args.methods[:turn]):
                found[name][method].append(_one(name, method, args))
    return {name: {m: _merged(runs) for m, runs in methods.items()} for name, methods in found.items()}


def _one(model: str, method: str, args: argparse.Namespace) -> dict[str, Any]:
    running = QuietCell(model, method, "cuda", args.dtype)
    with empty_caches() if args.cold else nullcontext():
        return _measured(running, args)


@contextmanager
def empty_caches() -> Iterator[None]:
    """Processes that are started in the block have empty compile caches."""
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
    previous = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {name: str(Path(folder) / name) for name in names}
        try:
            yield
        finally:
            for name, value in previous.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def _measured(running: QuietCell, args: argparse.Namespace) -> dict[str, Any]:
    args.host = args.host.worse(host_state())
    running.begin()
    try:
        running.wait(time.monotonic() + args.deadline)
        for _ in range(args.rounds):
            if running.usable:
                running.measure(time.monotonic() + 60)
        if running.usable:
            running.count_kernels(time.monotonic() + 60)
    finally:
        running.stop()
    record = running.record()
    result = record.get("median_ms", record.get("failed"))
    print(f"{running.model:20s} {running.method:16s} {result} set-up {record.get('setup_s')} s", flush=True)
    return record


def _merged(runs: list[dict[str, Any]]) -> dict[str, Any]:
    medians = [run["median_ms"] for run in runs if "median_ms" in run]
    last = {key: value for key, value in runs[-1].items() if key not in ("rounds_ms", "from_to_ms", "median_ms")}
    if not medians:
        return last
    return {**last, "median_ms": round(statistics.median(medians), 4), "processes_ms": medians}


def fill_caches(models: Sequence[str], args: argparse.Namespace) -> None:
    """Compile everything once, several processes at a time."""
    cells = [QuietCell(name, m, "cuda", args.dtype) for name in models for m in args.methods if m != "eager"]
    until = time.monotonic() + args.deadline
    for at in range(0, len(cells), args.at_once):
        group = cells[at : at + args.at_once]
        for one in group:
            one.begin()
        for one in group:
            one.wait(until)
            one.stop()
    print(f"caches filled, {sum('failed' in one.about for one in cells)} of {len(cells)} failed", flush=True)


def mean_gain(found: Mapping[str, Mapping[str, Any]], other: str) -> float:
    """The geometric mean of how many times faster rs.optimize is."""
    gains = [
        methods[other]["median_ms"] / methods["rs.optimize"]["median_ms"]
        for methods in found.values()
        if "median_ms" in methods.get(other, {}) and "median_ms" in methods.get("rs.optimize", {})
    ]
    return math.exp(statistics.fmean(map(math.log, gains))) if gains else math.nan


def table(models: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the lines of a table: the roofline, and for each method the time of a call, that of its kernels, and their number."""
    methods = [m for m in METHODS if any(m in found for found in models.values())]
    yield f"{'model':22s} {'roofline':>9s}  " + "  ".join(f"{m:>26s}" for m in methods)
    for name, found in models.items():
        rooflines = [about["roofline_ms"] for about in found.values() if "roofline_ms" in about]
        cells = []
        for method in methods:
            about = found.get(method, {})
            kernels = f"{about['device_ms']:.3f} in {about['kernels']}" if "kernels" in about else ""
            cells.append(f"{about['median_ms']:.3f} ({kernels})" if "median_ms" in about else "failed")
        yield f"{name:22s} {rooflines[0] if rooflines else '':>9}  " + "  ".join(f"{cell:>26s}" for cell in cells)


_COLOURS: Final = {"reduce-overhead": "#d99a4e", BY_HAND: "#8da0b8", "rs.optimize": "#c8372d"}


def draw(record: Mapping[str, Any]) -> str:
    """Milliseconds per call as horizontal bars; eager, which is far longer, as a number next to the model's name."""
    models = record["models"]
    longest = max(found[m]["median_ms"] for found in models.values() for m in _COLOURS)
    bar, gap, left, width = 15, 16, 200, 560
    body, y = [], 66
    for name, found in models.items():
        body.append(_text(left - 12, y + 20, escape(name), anchor="end", weight=600))
        body.append(_text(left - 12, y + 37, f"eager {found['eager']['median_ms']:.2g} ms", anchor="end"))
        for method, colour in _COLOURS.items():
            ms = found[method]["median_ms"]
            body.append(
                f'<rect x="{left}" y="{y}" width="{width * ms / longest:.1f}" height="{bar - 2}" rx="2" fill="{colour}"/>'
            )
            body.append(_text(left + width * ms / longest + 6, y + 11, f"{ms:.2f} ms"))
            y += bar
        y += gap
    keys, x = [], left
    for method, colour in _COLOURS.items():
        keys.append(f'<rect x="{x}" y="34" width="12" height="12" rx="2" fill="{colour}"/>{_text(x + 18, 44, method)}')
        x += 150
    title = f"Milliseconds per call, batch 1, {record['dtype']}, one {record['device']}, torch {record['torch']}"
    gain = f"rs.optimize: {mean_gain(models, 'reduce-overhead'):.2f}x as fast as reduce-overhead (geometric mean)"
    height = y + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {height}" width="860" height="{height}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif">'
        f'<rect x="0.5" y="0.5" width="859" height="{height - 1}" rx="12" fill="#f7f8fa" stroke="#c9ced6"/>'
        f"{_text(20, 22, title, weight=600)}{''.join(keys)}{''.join(body)}{_text(20, height - 12, gain)}</svg>\n"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: int = 400) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" font-weight="{weight}" text-anchor="{anchor}" fill="#1c2330">{text}</text>'


def main() -> None:
    """Measure, draw a record, or be one of the measured processes."""
    cell.METHODS = {**cell.METHODS, BY_HAND: graph_by_hand}  # type: ignore[misc]
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        cell.main()
        return
    from benchmarks.models import MODELS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--processes", type=int, default=2, help="processes of every method")
    parser.add_argument(
        "--at-once", type=int, default=6, help="processes at a time while the caches are filled; 0: do not fill them"
    )
    parser.add_argument("--cold", action="store_true", help="one process of every method, each with empty caches")
    parser.add_argument("--deadline", type=float, default=300, help="seconds for a process to be set up")
    parser.add_argument("--out", type=Path, help="write the record here")
    parser.add_argument("--busy", action="store_true", help="write the record even if the host was busy")
    parser.add_argument("--draw", nargs=2, type=Path, metavar=("RECORD", "SVG"), help="draw a record")
    args = parser.parse_args()
    args.host = HostState()
    if args.draw:
        args.draw[1].write_text(draw(json.loads(args.draw[0].read_text(encoding="utf-8"))), encoding="utf-8")
        return
    record = evidence(
        what="public models with random weights, batch 1; one process at a time, nothing else running",
        command=" ".join(["python -m benchmarks.quiet", *sys.argv[1:]]),
        **versions(argparse.Namespace(device="cuda")),
        dtype=args.dtype,
        models={},
    )
    if args.cold:
        args.processes = 1
    elif args.at_once:
        fill_caches(args.models, args)
    for name in args.models:
        record["models"] |= measure([name], args)
        record["host"] = dataclasses.asdict(args.host)
        if args.out and (args.busy or not args.host.noisy):
            write(record, args.out)
    for other in args.methods:
        print(f"rs.optimize over {other}: {mean_gain(record['models'], other):.2f}")
    print("\n".join(table(record["models"])))
    if args.host.noisy and not args.busy:
        sys.exit(f"not written: {args.host.noisy}; measure again on a quiet host, or write it with --busy")


if __name__ == "__main__":
    main()
