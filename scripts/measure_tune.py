"""Measure how reliable the tuner is on this machine: equal variants, a known difference, and the cost of a trial.

    python scripts/measure_tune.py --out evidence/tune-on-cpu.json
    python scripts/measure_tune.py --equal 2 --planted 2 --starts 3     quick, writes nothing

Equal variants must be SAME in 19 of 20 runs, a known difference of a tenth must have the right sign in 9 of 10, and a trial may cost
at most 0.3 s more than starting Python and importing torch. The load of the machine is recorded with each run.
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
from rocsolid.model.trial_result import Answered
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.tune.isolate.trial import run
from rocsolid.tune.space import Narrowing, space_of
from rocsolid.tune.trials import Job

# Has no effect on a CPU, so it can tell the workload which variant it is.
VARIABLE = "TRITON_DEFAULT_FP_FUSION"
STEPS = 110
WORKLOAD = f"{Path(__file__).resolve()}:build"


def build() -> Any:
    """A chain of element-wise operations on one core; the faster variant leaves out a tenth of them."""
    import torch

    torch.set_num_threads(1)
    steps = STEPS * 10 // 11 if os.environ.get(VARIABLE) == "short" else STEPS

    def call(x: Any) -> Any:
        for _ in range(steps):
            torch.sin_(x.clone())
        return x

    return call, (torch.linspace(0, 1, 4096),), {}


def main() -> None:
    """Run all measurements, and print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--equal", type=int, default=20, metavar="N", help="comparisons of a variant with itself")
    parser.add_argument(
        "--planted", type=int, default=10, metavar="N", help="comparisons with a tenth of the work left out"
    )
    parser.add_argument("--starts", type=int, default=7, metavar="N", help="trials whose cost is measured")
    parser.add_argument("--rounds", type=int, default=24, metavar="N", help="rounds per comparison")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the record to this file")
    args = parser.parse_args()
    if args.out:
        args.out = args.out.resolve()
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        cost = _cost(args.starts, Path(folder))
        print(json.dumps(cost), flush=True)
        equal = [_compare("form=eager", args.rounds) for _ in range(args.equal)]
        planted = [_compare(f"form=eager,process.{VARIABLE}=short", args.rounds) for _ in range(args.planted)]
    record = {**_about(args), "trial": cost, "equal": _summed(equal), "planted": _summed(planted)}
    if args.out:
        write(record, args.out)
    print(json.dumps({name: record[name]["verdicts"] for name in ("equal", "planted")}))


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    """Run in a temporary folder, because studies are stored below the current folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _compare(variant: str, rounds: int) -> dict[str, Any]:
    begun, load = time.monotonic(), os.getloadavg()[0]
    comparison = rs.ab(WORKLOAD, "form=eager", variant, rounds=rounds).b_against_a
    found = {
        "verdict": comparison.verdict.value,
        "speedup": round(comparison.speedup, 4),
        "low": round(comparison.low, 4),
        "high": round(comparison.high, 4),
        "noise": round(comparison.noise, 4),
        "load": round(load, 1),
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(found), flush=True)
    return found


def _summed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"verdicts": dict(Counter(run["verdict"] for run in runs)), "runs": runs}


def _cost(times: int, folder: Path) -> dict[str, Any]:
    """Seconds of a trial besides its own work, and seconds to import torch; the two are measured in turns."""
    env = quick_environment()
    space = space_of(resolve("safe", env), env, Narrowing(fixed={"form": "eager"}))
    job = Job(workload=WORKLOAD, space=space, folder=folder)
    bare, beyond = [], []
    for number in range(times):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        bare.append(time.monotonic() - begun)
        begun = time.monotonic()
        ending = run(job.errand({}), folder / f"trial-{number}")
        whole = time.monotonic() - begun
        assert isinstance(ending, Answered), ending
        own = sum(seconds for phase, seconds in ending.account.phases.items() if phase != "import")
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
        what="reliability of the tuner: a variant compared with itself, a variant with a tenth of its work left out, and "
        "seconds of a trial besides its own work and the import of torch",
        command=f"python scripts/measure_tune.py {given}",
        notes="`load` is the load average when a run began; each run starts twelve processes, three at a time.",
    )


if __name__ == "__main__":
    main()
