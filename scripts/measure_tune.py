"""Measure how reliable the tuner is on this machine: equal sides, a known difference, and the cost of a trial.

    python scripts/measure_tune.py --out evidence/tune-on-cpu.json
    python scripts/measure_tune.py --equal 2 --planted 2 --starts 3     a quick run, nothing is written

Equal sides must be SAME in 19 runs of 20, a known difference of a tenth must have the right sign in 9 of 10, and a trial must cost at most
0.3 s beyond the start of the interpreter and of torch. The load of the machine is recorded with each run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import rocsolid as rs
from rocsolid.catalog.profiles import resolve
from rocsolid.measure.evidence import evidence, write
from rocsolid.model.trial_result import Returned
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.tune.isolate.trial import run
from rocsolid.tune.space import Restrictions, build_space
from rocsolid.tune.trials import StudyConfig

BEHAVIOUR = "TRITON_DEFAULT_FP_FUSION"  # not read on a CPU, so it can tell the workload which side it is
STEPS = 110
WORKLOAD = f"{Path(__file__).resolve()}:build"


def build() -> Any:
    """A chain of element-wise operations on one core; the shorter side leaves out a tenth of it."""
    import torch

    torch.set_num_threads(1)
    steps = STEPS * 10 // 11 if os.environ.get(BEHAVIOUR) == "short" else STEPS

    def call(x: Any) -> Any:
        for _ in range(steps):
            torch.sin_(x.clone())
        return x

    return call, (torch.linspace(0, 1, 4096),), {}


def main() -> None:
    """Run everything and print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--equal", type=int, default=20, metavar="N", help="comparisons of a side with itself")
    parser.add_argument("--planted", type=int, default=10, metavar="N", help="comparisons with a tenth left out")
    parser.add_argument("--starts", type=int, default=7, metavar="N", help="trials whose cost is measured")
    parser.add_argument("--rounds", type=int, default=24, metavar="N", help="of each comparison")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a record")
    args = parser.parse_args()
    if args.out:
        args.out = args.out.resolve()
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        cost = _cost(args.starts, Path(folder))
        print(json.dumps(cost), flush=True)
        equal = [_run_ab("form=eager", args.rounds) for _ in range(args.equal)]
        planted = [_run_ab(f"form=eager,process.{BEHAVIOUR}=short", args.rounds) for _ in range(args.planted)]
    record = {**_about(args), "trial": cost, "equal": _summed(equal), "planted": _summed(planted)}
    if args.out:
        write(record, args.out)
    print(json.dumps({name: record[name]["verdicts"] for name in ("equal", "planted")}))


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    """Studies are stored in the current folder; these are temporary."""
    previous_folder = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(previous_folder)


def _run_ab(side: str, rounds: int) -> dict[str, Any]:
    begun, load = time.monotonic(), os.getloadavg()[0]
    found = rs.ab(WORKLOAD, "form=eager", side, rounds=rounds).b_against_a
    record = {
        "verdict": found.verdict.value,
        "speedup": round(found.speedup, 4),
        "low": round(found.low, 4),
        "high": round(found.high, 4),
        "noise": round(found.noise, 4),
        "load": round(load, 1),
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(record), flush=True)
    return record


def _summed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"verdicts": dict(Counter(run["verdict"] for run in runs)), "runs": runs}


def _cost(times: int, folder: Path) -> dict[str, Any]:
    """Seconds of a trial outside its own work, and of a bare `import torch`; the two take turns."""
    env = quick_environment()
    space = build_space(resolve("safe", env), env, Restrictions(fixed={"form": "eager"}))
    config = StudyConfig(workload=WORKLOAD, space=space, folder=folder)
    bare, beyond = [], []
    for number in range(times):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        bare.append(time.monotonic() - begun)
        begun = time.monotonic()
        result = run(config.trial_spec({}), folder / f"trial-{number}")
        whole = time.monotonic() - begun
        assert isinstance(result, Returned), result
        own = sum(seconds for phase, seconds in result.cost.phases.items() if phase != "import")
        beyond.append(whole - own)
    return {
        "torch_start_s": {"median": round(median(bare), 3), "least": round(min(bare), 3)},
        "trial_without_its_work_s": {"median": round(median(beyond), 3), "least": round(min(beyond), 3)},
        "overhead_s": {"median": round(median(beyond) - median(bare), 3), "least": round(min(beyond) - min(bare), 3)},
        "trials": times,
    }


def _about(args: argparse.Namespace) -> dict[str, Any]:
    given = f"--equal {args.equal} --planted {args.planted} --starts {args.starts} --rounds {args.rounds}"
    return evidence(
        what="how reliable the tuner is: a side compared with itself, a side with a tenth of its work left out, and "
        "seconds of a trial beyond its own work and beyond a bare start of torch",
        command=f"python scripts/measure_tune.py {given}",
        notes="`load` is the load average when a run began; each run starts twelve processes, three at a time.",
    )


if __name__ == "__main__":
    main()
