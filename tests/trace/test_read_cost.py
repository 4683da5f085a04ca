"""Limits for CPU time and memory of reading a trace, and for their growth with the size of the trace."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, run_python, scaled_cpu_seconds

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

MEGABYTES = 100
# For 1 GB: CPU seconds and resident MB. Python and numpy take about 40 MB before the first byte is read.
LIMITS = {"stacks": (8.0, 400), "dense": (20.0, 400)}
MEASURE = """
import json, resource, sys
from pathlib import Path
from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.readers.kineto import read_kineto
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
begin = cpu()
trace = analyze_trace(sys.argv[1], read_kineto(Path(sys.argv[1])))
# Not ru_maxrss: a child process starts with the value of its parent.
peak = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
device = {k: v for k, v in vars(trace.devices[0]).items() if isinstance(v, int)}
print(json.dumps({"cpu_s": cpu() - begin, "peak_mb": peak, "events": trace.events, "device": device}))
"""


def made(folder: Path, kind: str, megabytes: int) -> tuple[Path, dict[str, int]]:
    file = folder / f"{kind}-{megabytes}.json"
    ran = run_python(str(ROOT / "scripts/make_trace.py"), kind, str(megabytes), str(file), python=sys.executable)
    assert ran.code == 0, ran.err
    return file, json.loads(ran.out)


def measured(file: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    def cpu_s() -> float:
        ran = run_python("-c", MEASURE, str(file))
        assert ran.code == 0, ran.err
        seen.update(ran.json())
        return float(seen["cpu_s"])

    least = scaled_cpu_seconds(cpu_s, repeats=3)
    return {**seen, "cpu_s": least}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_large_trace_is_read_exactly_and_within_the_limits(tmp_path: Path, kind: str) -> None:
    small, _ = made(tmp_path, kind, MEGABYTES // 5)
    file, truth = made(tmp_path, kind, MEGABYTES)
    seen, before = measured(file), measured(small)
    cpu_s, peak_mb = LIMITS[kind]

    assert seen["events"] == truth.pop("events")
    assert {name: seen["device"][name] for name in truth} == truth
    assert seen["cpu_s"] <= cpu_s * MEGABYTES / 1000
    grown = seen["peak_mb"] - before["peak_mb"]  # over 80 MB of trace
    assert before["peak_mb"] + grown * 980 / 80 <= peak_mb
    assert seen["cpu_s"] <= 1.6 * 5 * before["cpu_s"]  # linear, with room for noise
