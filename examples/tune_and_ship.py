"""Find the best settings for a workload, keep them as a plan, check that the plan is worth it, and ship it.

python examples/tune_and_ship.py            # a minute or two; each variant runs in a process of its own

This file is its own workload: `tune_and_ship.py:build` is what the tuner calls in each process.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

import rocsolid as rs


def build() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The workload: what to call, and with what."""
    torch.manual_seed(0)
    layers = [module for _ in range(6) for module in (nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*layers).eval(), (torch.randn(16, 64),), {}


def main(budget_s: float, rounds: int, *vary: str) -> None:
    """Tune, save, use."""
    from rocsolid.tune.effort import Effort

    folder = Path(tempfile.mkdtemp())
    study = rs.tune(
        f"{__file__}:build",
        # Name what may vary; leave it out to vary all that the catalogue knows to matter.
        vary={"form": list(vary or ("compiled", "eager"))},
        search="exhaustive",
        effort=Effort(budget_s=budget_s, rounds=rounds, finalists=2),
        file=folder / "tune.db",  # interrupted, the same call goes on from there
    )
    for trial in study.trials:
        print(f"{trial.name}: {trial.timing or trial.reason}")
    print(f"winner: {study.winner} ({study.verdict.name}; {study.reason})")

    # Ship the file. It holds the values, what was measured, and on which chip; on another chip it is not believed.
    plan = folder / "plan.toml"
    study.best.save(plan)
    print(f"{plan}: {len(study.best.decisions)} values, each with its reason")

    # Where it serves: the form that won is tried beside eager, and its answer is checked before it is used.
    model, args, _ = build()
    with torch.no_grad():
        fast = rs.optimize(model, args, plan=plan, budget_s=0)  # leave budget_s out in earnest
        torch.testing.assert_close(fast(*args), model(*args), rtol=1e-3, atol=1e-3)
    print(fast.report())


if __name__ == "__main__":
    words = sys.argv[1:]
    main(float(words[0]) if words else 120, int(words[1]) if len(words) > 1 else 24, *words[2:])
