"""Decide for every form of a workload (compiled, captured, with vendor operators) whether its results are wrong or only different.

Examples:
  rocsolid verify work.py:build                              a table of errors and a verdict for every form
  rocsolid verify work.py:build --form compiled              only this form
  rocsolid verify work.py:build --bisect                     find what makes the compiled form wrong, and the change that fixes it
  rocsolid verify work.py:build --seeds 1 --scales 1         only the inputs of the workload
  rocsolid verify work.py:build --output html --out verify.html

Where a form differs from eager, both are compared with the model in higher precision. The verdict on each result is `same`,
`different but as accurate`, `less accurate` or `wrong`; the exit code is 1 if a result is wrong. Everything runs in child processes.

"""

import argparse
from pathlib import Path

from rocsolid.cli.output import add_output, add_workload, require_writable, write
from rocsolid.cli.parse_units import seconds


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_workload(parser)
    parser.add_argument(
        "--form", action="append", default=[], help="check only this form (repeatable): compiled, 'eager + graph'"
    )
    parser.add_argument("--bisect", action="store_true", help="find the layer, operator and setting that make it wrong")
    parser.add_argument("--profile", default="fast", help="profile to compile with (default: fast)")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="compile with a saved plan instead of a profile")
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="how many sets of values are tried (default: 3)"
    )
    parser.add_argument(
        "--scales", default="1,16", metavar="S,S", help="factors for the floating-point inputs (default: 1,16)"
    )
    parser.add_argument("--rtol", type=float, help="allowed relative difference of each element from eager")
    parser.add_argument("--atol", type=float, help="allowed absolute difference of each element from eager")
    parser.add_argument("--limit", type=float, help="accepted relative L2 difference from eager")
    parser.add_argument("--ratio", type=float, help="accepted error, as a multiple of eager's own (default: 1.1)")
    parser.add_argument(
        "--deadline",
        type=seconds,
        default=600.0,
        metavar="TIME",
        help="deadline of each check: 90s, 10m (default: 10m)",
    )
    parser.add_argument("--grad", action="store_true", help="run with gradients enabled (default: under torch.no_grad)")
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Check the workload and write the report; 1 if a form is wrong."""
    from rocsolid.api.verify import verify_workload
    from rocsolid.cli.render import render_report
    from rocsolid.model.progress import Step
    from rocsolid.report.progress import show_steps

    if args.out:
        require_writable(args.out)
    with show_steps() as on_step:
        report = verify_workload(
            args.workload,
            forms=args.form,
            profile=args.profile,
            plan=args.plan,
            seeds=args.seeds,
            scales=args.scales.split(","),
            rtol=args.rtol,
            atol=args.atol,
            limit=args.limit,
            ratio=args.ratio,
            deadline_s=args.deadline,
            grad=args.grad,
            bisect=args.bisect,
            on_status=lambda text: on_step(Step(what=text)),
        )
    write(render_report(report, args.output), args.out)
    return int(report.wrong)
