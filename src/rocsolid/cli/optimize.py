"""Try every form of a workload (eager, compiled, captured), throw out what answers wrongly, and say which is fastest.

Examples:
  rocsolid optimize work.py:build                              the table, and which form to use
  rocsolid optimize work.py:build --budget 120                 what does not fit into two minutes is skipped
  rocsolid optimize work.py:build --plan plan.toml             compile with the values of a plan
  rocsolid optimize work.py:build --output html --out optimize.html

"""

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path

from rocsolid.cli.output import add_output, add_workload, write
from rocsolid.cli.parse_units import budget
from rocsolid.cli.render import render_optimize


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_workload(parser)
    parser.add_argument("--profile", default="fast", help="whose settings compile it (default: fast)")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="compile with the values of a plan instead")
    parser.add_argument("--budget", type=budget, metavar="TIME", help="about how long it may take: 90s, 10m, 2h")
    parser.add_argument("--grad", action="store_true", help="with gradients on; without, it runs under no_grad")
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Load, optimize, tell."""
    import torch

    from rocsolid.api.optimize import optimize
    from rocsolid.measure.load_workload import load_workload

    with redirect_stdout(sys.stderr), torch.set_grad_enabled(args.grad):
        workload = load_workload(args.workload)
        fast = optimize(
            workload.callable,
            (workload.args, workload.kwargs),
            profile=args.profile,
            plan=args.plan,
            budget_s=args.budget,
        )
    write(render_optimize(fast.report(), args.output), args.out)
    return 0
