"""Find the best settings for a workload, save them as a plan, and use the plan in production.

python examples/tune_and_ship.py            # a minute or two; each variant runs in its own process

This file is also the workload: the tuner calls `tune_and_ship.py:build` in each process.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

import rocsolid as rs


def build() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The workload: a callable and its arguments."""
    torch.manual_seed(0)
    layers = [module for _ in range(6) for module in (nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*layers).eval(), (torch.randn(16, 64),), {}


def main(budget_s: float, rounds: int, *vary: str) -> None:
    """Tune the workload, save the plan, and use it."""
    from rocsolid.tune.effort import Effort

    folder = Path(tempfile.mkdtemp())
    study = rs.tune(
        f"{__file__}:build",
        # The settings to vary; without `vary`, all settings that the catalogue recommends to try.
        vary={"form": list(vary or ("compiled", "eager"))},
        search="exhaustive",
        effort=Effort(budget_s=budget_s, rounds=rounds, finalists=2),
        file=folder / "tune.db",  # after an interruption, the same call continues from here
    )
    for trial in study.trials:
        print(f"{trial.name}: {trial.timing or trial.reason}")
    print(f"fastest: {study.winner} ({study.verdict.name}; {study.reason})")

    # Ship this file. It contains the values, the measurements and the chip; on another chip it is not applied.
    plan = folder / "plan.toml"
    study.best.save(plan)
    print(f"{plan}: {len(study.best.decisions)} values, each with its reason")

    # In production, rs.optimize compares the plan's variant with eager and verifies its result before using it.
    model, args, _ = build()
    with torch.no_grad():
        fast = rs.optimize(model, args, plan=plan, budget_s=0)  # leave out budget_s= in real use
        torch.testing.assert_close(fast(*args), model(*args), rtol=1e-3, atol=1e-3)
    print(fast.report())


if __name__ == "__main__":
    args = sys.argv[1:]
    main(float(args[0]) if args else 120, int(args[1]) if len(args) > 1 else 24, *args[2:])
