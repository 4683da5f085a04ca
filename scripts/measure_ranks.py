"""Measure `rocsolid trace FOLDER --ranks` beside HolisticTraceAnalysis with its ijson backend, in turns.

python -m venv hta && hta/bin/pip install HolisticTraceAnalysis ijson "pandas<3"
python scripts/measure_ranks.py FOLDER --other hta/bin/python [--rounds 2] [--runs 3]

Each round runs ours a few times, then the other once; CPU seconds (user and system) of all processes. Both read every
rank, break the kernels down and explain idle time. The least of each is kept: other work on the machine can only add.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[1] / "src"
OTHER = """
import logging, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import ijson, pandas
from hta.configs.parser_config import ParserBackend, ParserConfig
config = ParserConfig.get_default_cfg()
config.set_parser_backend(ParserBackend.IJSON_BATCH_AND_COMPRESS)
ParserConfig.set_default_cfg(config)
from hta.trace_analysis import TraceAnalysis
files = dict(enumerate(sys.argv[2:]))
analysis = TraceAnalysis(trace_files=files, trace_dir=sys.argv[1])
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
    args = parser.parse_args()
    files = sorted(map(str, args.folder.glob("*.json*")))
    rounds: list[dict[str, Any]] = []
    for _ in range(args.rounds):
        loads = [os.getloadavg()[0]]
        ours = [measured(our_command(args.folder)) for _ in range(args.runs)]
        other, said = timed([str(args.other), "-c", OTHER, str(args.folder), *files])
        loads.append(os.getloadavg()[0])
        rounds.append({"ours_cpu_s": ours, "other_cpu_s": other, "other": said, "load": [round(n, 1) for n in loads]})
    best = min(cpu for found in rounds for cpu in found["ours_cpu_s"])
    least = min(found["other_cpu_s"] for found in rounds)
    ratio = round(least / best, 1)
    print(json.dumps({"ranks": len(files), "ours": best, "other": least, "ratio": ratio, "rounds": rounds}))


def our_command(folder: Path) -> list[str]:
    """As a user would call it."""
    return [sys.executable, "-m", "rocsolid", "trace", str(folder), "--ranks", "--output", "json"]


def measured(command: list[str]) -> float:
    """CPU seconds of our run, its answers thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        return timed([*command, "--out", str(Path(folder) / "out.json")])[0]


def timed(command: list[str]) -> tuple[float, str]:
    """CPU seconds of a process and all that it started, and what it said."""
    before: Any = os.times()
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    after: Any = os.times()
    if ran.returncode != 0:
        sys.exit(f"{command[0]} ended with {ran.returncode}: {ran.stderr[-500:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return round(cpu, 2), ran.stdout.strip()


if __name__ == "__main__":
    main()
