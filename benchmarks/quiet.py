"""Measure methods one process at a time: nothing else runs while a method is measured.

    python -m benchmarks.quiet --models bert resnet50 --out evidence/quiet-on-h200.json
    python -m benchmarks.quiet --cold --models bert ten_step_denoiser
    python -m benchmarks.quiet --methods reduce-overhead "graph by hand" rs.optimize --results runs.json --minutes 8
    python -m benchmarks.quiet --draw evidence/quiet-on-h200.json docs/assets/speed-up.svg

`benchmarks.run` keeps the processes of many models alive side by side, which slows down everything that is bound by the CPU.
Here a process starts, warms up, is measured and ends before the next one starts; methods take turns, and every method has
several processes. A first pass fills the compile caches, several processes at once, and is not measured. With `--cold` there is no
such pass, every process has empty caches, and its set-up time is what a user waits the first time.

There are two times of a call, both from an idle GPU: by the GPU's clock until it is idle again, and by the host's clock from the call
until the result is there (wall). The record also has the number of kernels of a call, how long they take without gaps, and the least
time that the weights and FLOPs need on this GPU. The host is watched before and while a process is measured: if other processes,
the hypervisor or a low frequency disturb it, the record is not written, unless `--busy` is set.

`--results FILE` keeps every finished process, so that a run can be stopped and continued: it measures what is missing in the file, and
again what was measured on a busy host. `--minutes` ends it in time. Without `--out`, call it again with both to write the record.
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
from benchmarks.host import HostState, HostWatch, host_state
from benchmarks.run import BenchmarkProcess, versions
from rocsolid.measure.evidence import evidence, write

BY_HAND: Final = "graph by hand"
METHODS: Final = ("eager", "reduce-overhead", BY_HAND, "rs.optimize")
_WITH_A_STEP: Final = ("llama_generate", "changing_lengths", "training_step")  # rs.optimize needs one example input


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
    """A process of this module instead of `benchmarks.cell`, which does not know the graph by hand. It measures the wall time, too."""

    module = "benchmarks.quiet"

    def __init__(self, model: str, method: str, device: str, dtype: str) -> None:
        super().__init__(model, method, device, dtype)
        self.wall: list[float] = []

    def measure(self, deadline: float) -> None:
        """Measure one round by each clock."""
        super().measure(deadline)
        if self.usable:
            by_gpu = self.rounds.pop()
            self.ask("wall ", deadline)
            if self.usable:
                self.wall.append(self.rounds.pop())
                self.rounds.append(by_gpu)

    def record(self) -> dict[str, Any]:
        """Its results."""
        found = super().record()
        return {**found, "wall_ms": round(statistics.median(self.wall), 4)} if self.wall else found


_SET_UP_S: Final = 30.0  # of a process, if it is not known
Runs = dict[str, dict[str, list[dict[str, Any]]]]


def measure(runs: Runs, args: argparse.Namespace, save: Callable[[], None]) -> bool:
    """Measure the processes that are missing, model by model; return whether there was time for all of them."""
    until = time.monotonic() + 60 * args.minutes
    for number in range(args.processes):
        missing = {
            name: [m for m in _in_turn(args.methods, number) if len(runs[name][m]) <= number] for name in args.models
        }
        names = [name for name in args.models if missing[name]]
        for at in range(0, len(names), args.batch):
            batch = names[at : at + args.batch]
            if time.monotonic() + _SET_UP_S * len(args.methods) > until:
                return False
            set_up_s: dict[tuple[str, str], float] = {}
            if args.at_once and not args.cold:
                set_up_s = fill_caches({name: missing[name] for name in batch}, args, until)
            for name in batch:
                needed_s = sum(set_up_s.get((name, m), _SET_UP_S) + args.rounds / 4 for m in missing[name])
                if time.monotonic() + needed_s > until:
                    return False
                for method in missing[name]:
                    runs[name][method].append(_one(name, method, args))
                    save()
    return True


def _in_turn(methods: Sequence[str], number: int) -> list[str]:
    turn = number % len(methods)
    return [*methods[turn:], *methods[:turn]]


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
    host = host_state()
    running.begin()
    try:
        running.wait(time.monotonic() + args.deadline)
        watch = HostWatch()
        for _ in range(args.rounds):
            if running.usable:
                running.measure(time.monotonic() + 60)
        host = host.worse(watch.state())
        if running.usable:
            running.count_kernels(time.monotonic() + 60)
    finally:
        running.stop()
    record = {**running.record(), "host": dataclasses.asdict(host)}
    result = record.get("median_ms", record.get("failed"))
    print(
        f"{running.model:20s} {running.method:16s} {result} wall {record.get('wall_ms')} set-up {record.get('setup_s')} s "
        f"{record.get('chosen', '')} {host.noisy}",
        flush=True,
    )
    return record


_OF_A_RUN: Final = ("rounds_ms", "from_to_ms", "median_ms", "wall_ms", "host")


def merged(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One result of all processes of a method: the medians, and the rest of the last process."""
    if not runs:
        return {"failed": "not measured"}
    last = {key: value for key, value in runs[-1].items() if key not in _OF_A_RUN}
    good = [run for run in runs if "median_ms" in run]
    if not good:
        return last
    medians = [run["median_ms"] for run in good]
    walls = [run["wall_ms"] for run in good if "wall_ms" in run]
    wall = {"wall_ms": round(statistics.median(walls), 4)} if walls else {}
    return {**last, "median_ms": round(statistics.median(medians), 4), **wall, "processes_ms": medians}


def fill_caches(
    missing: Mapping[str, Sequence[str]], args: argparse.Namespace, until: float
) -> dict[tuple[str, str], float]:
    """Compile everything once, several processes at a time; return how many seconds each of them took."""
    cells = [
        QuietCell(name, m, "cuda", args.dtype) for name, methods in missing.items() for m in methods if m != "eager"
    ]
    until = min(until, time.monotonic() + args.deadline)
    for at in range(0, len(cells), args.at_once):
        group = cells[at : at + args.at_once]
        for one in group:
            one.begin()
        for one in group:
            one.wait(until)
            one.stop()
    failed = [f"{one.model} {one.method}" for one in cells if "failed" in one.about]
    print(f"caches filled for {' '.join(missing)}; failed: {', '.join(failed) or 'none'}", flush=True)
    return {(one.model, one.method): one.about["setup_s"] for one in cells if "setup_s" in one.about}


def load_runs(args: argparse.Namespace, about: Mapping[str, Any]) -> Runs:
    """The runs of earlier calls, without those on a busy host; ends the program if they are of another machine or setting."""
    kept: dict[str, Any] = {}
    if args.results and args.results.exists():
        record = json.loads(args.results.read_text(encoding="utf-8"))
        different = [f"{key}: {record[key]}, now {value}" for key, value in about.items() if record[key] != value]
        if different:
            sys.exit(f"{args.results} was measured with something else: {'; '.join(different)}")
        kept = record["runs"]
    usable: Callable[[dict[str, Any]], bool] = lambda run: args.busy or not HostState(**run["host"]).noisy  # noqa: E731
    names = dict.fromkeys([*kept, *args.models])
    return {
        name: {
            method: [run for run in kept.get(name, {}).get(method, ()) if usable(run)]
            for method in dict.fromkeys([*kept.get(name, ()), *args.methods])
        }
        for name in names
    }


def mean_gain(found: Mapping[str, Mapping[str, Any]], other: str, time: str = "median_ms") -> float:
    """The geometric mean of how many times faster rs.optimize is, by the GPU's clock or by `wall_ms`."""
    gains = [
        methods[other][time] / methods["rs.optimize"][time]
        for methods in found.values()
        if time in methods.get(other, {}) and time in methods.get("rs.optimize", {})
    ]
    return math.exp(statistics.fmean(map(math.log, gains))) if gains else math.nan


def table(models: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the lines of a table: the roofline, and for each method the time of a call by both clocks, that of its kernels, and their number."""
    methods = [m for m in METHODS if any(m in found for found in models.values())]
    yield f"{'model':22s} {'roofline':>9s}  " + "  ".join(f"{m + ', wall':>33s}" for m in methods)
    for name, found in models.items():
        rooflines = [about["roofline_ms"] for about in found.values() if "roofline_ms" in about]
        cells = []
        for method in methods:
            about = found.get(method, {})
            kernels = f"{about['device_ms']:.3f} in {about['kernels']}" if "kernels" in about else ""
            wall = f"{about['wall_ms']:.3f} " if "wall_ms" in about else ""
            cells.append(f"{about['median_ms']:.3f} {wall}({kernels})" if "median_ms" in about else "failed")
        yield f"{name:22s} {rooflines[0] if rooflines else '':>9}  " + "  ".join(f"{cell:>33s}" for cell in cells)


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


def _arguments() -> argparse.Namespace:
    from benchmarks.models import MODELS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=None, choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--processes", type=int, default=2, help="processes of every method, with those in --results")
    parser.add_argument(
        "--at-once", type=int, default=6, help="processes at a time while the caches are filled; 0: do not fill them"
    )
    parser.add_argument("--batch", type=int, default=4, help="models whose caches are filled before they are measured")
    parser.add_argument("--cold", action="store_true", help="one process of every method, each with empty caches")
    parser.add_argument("--deadline", type=float, default=300, help="seconds for a process to be set up")
    parser.add_argument("--results", type=Path, help="keep finished processes here, and continue what is there")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="stop before that; a model is not begun without enough time"
    )
    parser.add_argument("--out", type=Path, help="write the record here")
    parser.add_argument("--busy", action="store_true", help="use results even if the host was busy")
    parser.add_argument("--draw", nargs=2, type=Path, metavar=("RECORD", "SVG"), help="draw a record")
    args = parser.parse_args()
    args.models = args.models or [name for name in MODELS if name not in _WITH_A_STEP]
    if args.cold:
        args.processes = 1
    return args


def main() -> None:
    """Measure, draw a record, or be one of the measured processes."""
    cell.METHODS = {**cell.METHODS, BY_HAND: graph_by_hand}  # type: ignore[misc]
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        cell.main()
        return
    args = _arguments()
    if args.draw:
        args.draw[1].write_text(draw(json.loads(args.draw[0].read_text(encoding="utf-8"))), encoding="utf-8")
        return
    about = {
        **versions(argparse.Namespace(device="cuda")),
        "dtype": args.dtype,
        "rounds": args.rounds,
        "cold": args.cold,
    }
    runs = load_runs(args, about)

    def save() -> None:
        if args.results:
            write({**about, "runs": runs}, args.results)

    publish(runs, about, args, complete=measure(runs, args, save))


def publish(runs: Runs, about: Mapping[str, Any], args: argparse.Namespace, *, complete: bool) -> None:
    """Print the table, and write the record if everything was measured on a quiet host."""
    found = {name: {m: merged(of_method) for m, of_method in methods.items()} for name, methods in runs.items()}
    measured = {name: methods for name, methods in found.items() if any("median_ms" in m for m in methods.values())}
    print("\n".join(table(measured)))
    for other in args.methods:
        gains = (mean_gain(measured, other, time) for time in ("median_ms", "wall_ms"))
        print("rs.optimize over {}: {:.2f}, wall {:.2f}".format(other, *gains))
    host = HostState()
    for run in (run for methods in runs.values() for of_method in methods.values() for run in of_method):
        host = host.worse(HostState(**run["host"]))
    if not complete:
        sys.exit(
            f"{len(measured)} of {len(args.models)} models: call it again to continue"
            if args.results
            else "out of time"
        )
    if host.noisy and not args.busy:
        sys.exit(f"not written: {host.noisy}; measure again on a quiet host, or write it with --busy")
    if args.out:
        record = evidence(
            what="public models with random weights, batch 1; one process at a time, nothing else running",
            command=" ".join(["python -m benchmarks.quiet", *sys.argv[1:]]),
            **about,
            host=dataclasses.asdict(host),
            models=found,
        )
        write(record, args.out)


if __name__ == "__main__":
    main()
