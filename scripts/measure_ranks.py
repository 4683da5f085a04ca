"""Compare the CPU time of `rocsolid trace FOLDER --ranks` with HolisticTraceAnalysis (default and ijson backend), in interleaved rounds.

python -m venv hta && hta/bin/pip install HolisticTraceAnalysis ijson "pandas<3"
python scripts/measure_ranks.py FOLDER --other hta/bin/python [--rounds 2] [--runs 3]

Each round runs rocsolid a few times, then HolisticTraceAnalysis once with each backend, and measures the CPU seconds (user and system)
of all processes. Both read every rank, break the kernels down and explain idle time. Medians are compared. rocsolid is run normally
("ours"), once with an empty cache, so that it compiles its scanner ("ours_first"), and in pure Python, as without a C compiler
("ours_python").
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
    """Measure in interleaved rounds, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--other", type=Path, required=True, help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3, help="runs of rocsolid per round")
    parser.add_argument(
        "--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help="backends of HolisticTraceAnalysis"
    )
    args = parser.parse_args()
    files = sorted(map(str, args.folder.glob("*.json*")))
    times: dict[str, list[float]] = {name: [] for name in ("ours", "ours_python", *args.backends)}
    loads, output = [os.getloadavg()[0]], ""
    with tempfile.TemporaryDirectory() as cache:
        times["ours_first"] = [measured(our_command(args.folder), XDG_CACHE_HOME=cache)]
        for _ in range(args.rounds):
            for _ in range(args.runs):
                times["ours"].append(measured(our_command(args.folder), XDG_CACHE_HOME=cache))
                times["ours_python"].append(measured(our_command(args.folder), ROCSOLID_NATIVE="0"))
            for backend in args.backends:
                cpu, output = timed([str(args.other), "-c", OTHER, backend, str(args.folder), *files])
                times[backend].append(cpu)
            loads.append(os.getloadavg()[0])
    ratios = {name: round(median(times[name]) / median(times["ours"]), 1) for name in args.backends}
    found = {"ranks": len(files), "cpu_s": times, "times_ours": ratios, "other": output}
    print(json.dumps({**found, "load": [round(load, 1) for load in loads]}))


def our_command(folder: Path) -> list[str]:
    """The command of rocsolid."""
    return [sys.executable, "-m", "rocsolid", "trace", str(folder), "--ranks", "--output", "json"]


def measured(command: list[str], **environment: str) -> float:
    """CPU seconds of one run; its output is discarded."""
    with tempfile.TemporaryDirectory() as folder:
        return timed([*command, "--out", str(Path(folder) / "out.json")], **environment)[0]


def timed(command: list[str], **more: str) -> tuple[float, str]:
    """CPU seconds of a process and its children, and its output."""
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
