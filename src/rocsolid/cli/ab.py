"""Compare two profiles, plans, settings or commits on one workload, in fresh processes that take turns.

Examples:
  rocsolid ab model.py:build --a safe --b fast
  rocsolid ab model.py:build --a fast --b plan.toml
  rocsolid ab model.py:build --a form=eager --b inductor.freezing=true,form=compiled
  rocsolid ab model.py:build --a fast --b plan.toml --require faster      exit code 1 unless it is
  rocsolid ab model.py:build --a git:main --b git:HEAD                    two commits, each in a work tree of its own
  rocsolid ab model.py:build --a git:HEAD,form=eager --b form=eager       a commit beside the files as they are

The verdict on b is FASTER, SLOWER, SAME, or UNSURE when the machine is too restless to tell. Both must answer as eager does.

"""

import argparse

from rocsolid.cli.output import add_output, add_workload, require_writable, write
from rocsolid.cli.tune import add_limits, limits_of, progress


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_workload(parser)
    for side in ("a", "b"):
        parser.add_argument(
            f"--{side}",
            required=True,
            metavar="SIDE",
            help="a profile, a plan.toml, or id=value,id=value; after git:REVISION with the files of that commit",
        )
    parser.add_argument("--profile", default="fast", help="what values are put on top of (default: fast)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=24,
        metavar="N",
        help="how often each side is timed (default: 24); up to three times that when it is too close to call",
    )
    parser.add_argument("--least-gain", type=float, default=0.02, metavar="R", help="less is no gain (default: 0.02)")
    parser.add_argument("--require", choices=("faster", "not-slower"), help="exit code 1 unless b is")
    add_limits(parser)
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Race the two and say which is faster, if either is."""
    from rocsolid.api.tune import ab
    from rocsolid.cli.render import render_duel
    from rocsolid.model.timing import Verdict

    if args.out:
        require_writable(args.out)
    with progress() as heard:
        duel = ab(
            args.workload,
            args.a,
            args.b,
            profile=args.profile,
            rounds=args.rounds,
            least_gain=args.least_gain,
            limits=limits_of(args),
            grad=args.grad,
            progress=heard,
        )
    write(render_duel(duel, args.output, to_file=args.out is not None), args.out)
    verdict = duel.b_against_a.verdict
    failed = {"faster": verdict is not Verdict.FASTER, "not-slower": verdict is Verdict.SLOWER}
    return int(failed.get(args.require, False))
