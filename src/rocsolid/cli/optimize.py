"""Measure every form of a workload (eager, compiled, captured as a graph) and report the fastest one with correct results.

Examples:
  rocsolid optimize work.py:build                              a table of all forms, and which one to use
  rocsolid optimize work.py:build --budget 120                 skip forms for which no time is left after two minutes
  rocsolid optimize work.py:build --plan plan.toml             compile with the values of a plan
  rocsolid optimize work.py:build --output html --out optimize.html

"""

import argparse
import logging
import sys
from contextlib import redirect_stdout
from pathlib import Path

from rocsolid.cli.output import add_output, add_workload, announce_plan, check_workload, require_writable, write
from rocsolid.cli.parse_units import budget
from rocsolid.cli.render import render_optimize


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_workload(parser)
    parser.add_argument("--profile", default="fast", help="profile to compile with (default: fast)")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="compile with a saved plan instead of a profile")
    parser.add_argument(
        "--budget", type=budget, metavar="TIME", help="about how long everything may take: 90s, 10m, 2h"
    )
    parser.add_argument(
        "--freeze",
        action="store_true",
        help="also try weights as constants of the compiled code (inference)",
    )
    parser.add_argument("--grad", action="store_true", help="run with gradients enabled (default: under torch.no_grad)")
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Load the workload, optimize it, and write the report."""
    check_workload(args.workload)
    if args.out:
        require_writable(args.out)
    import torch

    from rocsolid.api.optimize import optimize
    from rocsolid.measure.load_workload import load_workload
    from rocsolid.model.progress import Step
    from rocsolid.optimize.optimized import OptimizedModule
    from rocsolid.report.progress import show_steps

    if args.plan:
        announce_plan(args.plan)
    logging.getLogger("rocsolid").addFilter(lambda record: not str(record.msg).startswith("compiling %s: running"))
    with show_steps() as on_step, redirect_stdout(sys.stderr), torch.set_grad_enabled(args.grad):
        on_step(Step(what="loading the workload"))
        workload = load_workload(args.workload)
        fast = optimize(
            workload.callable,
            (workload.args, workload.kwargs),
            profile=args.profile,
            plan=args.plan,
            budget_s=args.budget,
            freeze=args.freeze,
            progress=on_step,
        )
    report = fast.rocsolid.report() if isinstance(fast, OptimizedModule) else fast.report()
    write(render_optimize(report, args.output, workload=args.workload, to_file=args.out is not None), args.out)
    return 0
