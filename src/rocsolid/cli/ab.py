"""Compare two profiles, plans, settings or commits on one workload, in fresh processes that take turns.

Examples:
  rocsolid ab model.py:build --a safe --b fast
  rocsolid ab model.py:build --a fast --b plan.toml
  rocsolid ab model.py:build --a form=eager --b inductor.freezing=true,form=compiled
  rocsolid ab model.py:build --a fast --b plan.toml --require faster      exit code 1 unless b is faster
  rocsolid ab model.py:build --a git:main --b git:HEAD                    two commits, each in its own work tree
  rocsolid ab model.py:build --a git:HEAD,form=eager --b form=eager       a commit compared with the working files

The verdict on b is FASTER, SLOWER, SAME, or UNSURE if identical processes differ too much to decide. The results of each side must
match those of its own eager. Results of two commits are not compared with each other: rs.verify does that. Besides settings, a side
can have form=compiled, form=regional (compile each repeated layer) or form=eager, and graph=true or graph=false.

"""

import argparse

from rocsolid.cli.output import add_output, add_workload, announce_plan, require_writable, write
from rocsolid.cli.tune import add_limits, limits_of, show_progress


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_workload(parser)
    for side in ("a", "b"):
        parser.add_argument(
            f"--{side}",
            required=True,
            metavar="SIDE",
            help="a profile, a plan.toml, or ID=VALUE,ID=VALUE; git:REVISION or git:REVISION,ID=VALUE uses the files of that commit",
        )
    parser.add_argument(
        "--profile", default="fast", help="profile to which the values of a side are added (default: fast)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=24,
        metavar="N",
        help="how often each side is timed (default: 24); up to three times as often while the verdict is UNSURE",
    )
    parser.add_argument(
        "--min-gain", type=float, default=0.02, metavar="R", help="a smaller difference counts as none (default: 0.02)"
    )
    parser.add_argument(
        "--require", choices=("faster", "not-slower"), help="exit with 1 unless b is faster, or unless b is not slower"
    )
    add_limits(parser)
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Run the A/B test and print the verdict."""
    from rocsolid.api.tune import ab
    from rocsolid.cli.render import render_ab
    from rocsolid.model.timing import Verdict

    if args.out:
        require_writable(args.out)
    for side in (args.a, args.b):
        if side.endswith(".toml"):
            announce_plan(side)
    with show_progress() as progress:
        result = ab(
            args.workload,
            args.a,
            args.b,
            profile=args.profile,
            rounds=args.rounds,
            min_gain=args.min_gain,
            limits=limits_of(args),
            grad=args.grad,
            progress=progress,
        )
    write(render_ab(result, args.output, to_file=args.out is not None), args.out)
    verdict = result.b_against_a.verdict
    failed = {"faster": verdict is not Verdict.FASTER, "not-slower": verdict is Verdict.SLOWER}
    return int(failed.get(args.require, False))
