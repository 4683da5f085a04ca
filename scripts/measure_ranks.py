"""Measure `rocsolid trace FOLDER --ranks` beside HolisticTraceAnalysis, as it comes and with its ijson backend, in turns.

python -m venv hta && hta/bin/pip install HolisticTraceAnalysis ijson "pandas<3"
python scripts/measure_ranks.py FOLDER --other hta/bin/python [--rounds 2] [--runs 3]

Each round runs ours a few times, then the other once with each backend; CPU seconds (user and system) of all processes. Both read every
rank, break the kernels down and explain idle time. Medians are compared. Ours is run as it comes ("ours"), once more at first with nothing
kept, so that it builds its scanner ("ours_first"), and by Python alone, as where there is no C compiler ("ours_python").
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

BACKENDS = ("default", "ijson")
SOURCES = Path(__file__).parents[1] / "src"
OTHER = """
import logging, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import ijson, pandas
from hta.configs.parser_config import ParserBackend, ParserConfig
if sys.argv[1] == "ijson":
    config = ParserConfig.get_default_cfg()
    config.set_parser_backend(ParserBackend.IJSON_BATCH_AND_COMPRESS)
    ParserConfig.set_default_cfg(config)
from hta.trace_analysis import TraceAnalysis
files = dict(enumerate(sys.argv[3:]))
analysis = TraceAnalysis(trace_files=files, trace_dir=sys.argv[2])
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=list(files), visualize=False)
from importlib.metadata import version
print(version("HolisticTraceAnalysis"), pandas.__version__, ijson.backend, len(analysis.t.traces))
"""


def main() -> None:
    """Measure in turns, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--other", type=Path, required=True, help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3, help="of ours in each round")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help="of the other")
    args = parser.parse_args()
    files = sorted(map(str, args.folder.glob("*.json*")))
    times: dict[str, list[float]] = {name: [] for name in ("ours", "ours_python", *args.backends)}
    loads, said = [os.getloadavg()[0]], ""
    with tempfile.TemporaryDirectory() as kept:
        times["ours_first"] = [measured(our_command(args.folder), XDG_CACHE_HOME=kept)]
        for _ in range(args.rounds):
            for _ in range(args.runs):
                times["ours"].append(measured(our_command(args.folder), XDG_CACHE_HOME=kept))
                times["ours_python"].append(measured(our_command(args.folder), ROCSOLID_NATIVE="0"))
            for backend in args.backends:
                cpu, said = timed([str(args.other), "-c", OTHER, backend, str(args.folder), *files])
                times[backend].append(cpu)
            loads.append(os.getloadavg()[0])
    ratios = {name: round(median(times[name]) / median(times["ours"]), 1) for name in args.backends}
    found = {"ranks": len(files), "cpu_s": times, "times_ours": ratios, "other": said}
    print(json.dumps({**found, "load": [round(load, 1) for load in loads]}))


def our_command(folder: Path) -> list[str]:
    """As a user would call it."""
    return [sys.executable, "-m", "rocsolid", "trace", str(folder), "--ranks", "--output", "json"]


def measured(command: list[str], **environment: str) -> float:
    """CPU seconds of our run, its answers thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        return timed([*command, "--out", str(Path(folder) / "out.json")], **environment)[0]


def timed(command: list[str], **more: str) -> tuple[float, str]:
    """CPU seconds of a process and all that it started, and what it said."""
    before: Any = os.times()
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), **more}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    after: Any = os.times()
    if ran.returncode != 0:
        sys.exit(f"{command[0]} ended with {ran.returncode}: {ran.stderr[-500:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return round(cpu, 2), ran.stdout.strip()


if __name__ == "__main__":
    main()
