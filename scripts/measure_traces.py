"""Measure the cost of `rocsolid trace` for traces of growing size, and compare its totals with FILE.truth.json.

python scripts/make_trace.py stacks 100 /tmp/stacks-100.json
python scripts/measure_traces.py /tmp/stacks-100.json ... [--runs 3] [--form json]

Prints one line of JSON per file: CPU seconds of all processes (user and system), wall seconds, and the peak memory of all
processes together, sampled. Of several runs, the one with the least CPU time counts, because other load can only add to it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[1] / "src"


def main() -> None:
    """Measure each file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--form", choices=("json", "text", "html"), default="json")
    args = parser.parse_args()
    for file in args.files:
        runs = [measure(file, args.form) for _ in range(args.runs)]
        best = min(runs, key=lambda run: run["cpu_s"])
        print(
            json.dumps(
                {
                    "file": file.name,
                    "mb": round(file.stat().st_size / 1e6),
                    "form": args.form,
                    "runs": len(runs),
                    **best,
                }
            ),
            flush=True,
        )


def measure(file: Path, form: str) -> dict[str, Any]:
    """Measure one run in a child process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [sys.executable, "-m", "rocsolid", "trace", str(file), "--output", form, "--out", str(out)]
        before = os.times()
        begun, peak = time.monotonic(), 0
        child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SOURCES)}, stderr=subprocess.DEVNULL)
        while child.poll() is None:
            peak = max(peak, resident(child.pid))
            time.sleep(0.02)
        wall, after = time.monotonic() - begun, os.times()
        if child.returncode != 0:
            sys.exit(f"rocsolid trace {file} ended with {child.returncode}")
        exact = check(file, json.loads(out.read_text(encoding="utf-8"))) if form == "json" else None
        size = out.stat().st_size
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "cpu_s": round(cpu, 2),
        "wall_s": round(wall, 2),
        "peak_mb": round(peak / 1e6),
        "exact": exact,
        "out_mb": round(size / 1e6, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def resident(root: int) -> int:
    """Resident bytes of a process and its descendants; shared pages are counted once per process."""
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, IndexError):
            continue
    return total


def check(file: Path, record: dict[str, Any]) -> bool | None:
    """Whether all totals equal those of the generator; None without a truth file."""
    truth_file = file.with_name(f"{file.name}.truth.json")
    if not truth_file.is_file():
        return None
    truth = json.loads(truth_file.read_text())
    (found,) = record["files"]
    device = {**found["devices"][0], "events": found["events"]}
    return all(device[name] == value for name, value in truth.items())


if __name__ == "__main__":
    main()
