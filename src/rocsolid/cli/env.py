"""Print the environment variables that a profile needs before a process starts, each with its reason.

Examples:
  eval "$(rocsolid env --profile fast)"             set them in this shell
  rocsolid env --profile fast --shell fish | source
  rocsolid env --profile safe --shell docker        ENV lines for a Dockerfile
  rocsolid env --profile debug --output json
  rocsolid env --target gfx942@7.2.1                for an MI300X with ROCm 7.2.1, on any machine

"""

import argparse

from rocsolid.cli.output import add_output, write
from rocsolid.cli.target import add_target, on_target

SHELLS = ("bash", "fish", "docker", "json")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--profile", default="safe", help="profile whose variables are printed (default: safe)")
    parser.add_argument("--plan", metavar="FILE", help="use a saved plan instead of a profile")
    parser.add_argument(
        "--ignore-platform", action="store_true", help="accept a plan that was made for another platform"
    )
    parser.add_argument("--shell", choices=SHELLS, default="bash", help="format of the output (default: bash)")
    add_target(parser)
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Resolve the profile for this machine and print its variables."""
    from rocsolid.api.safety import select_plan
    from rocsolid.probe.quick_facts import quick_environment
    from rocsolid.report.shell_variables import variables_text

    with on_target(args):
        env = quick_environment()
    plan = select_plan(args.profile, args.plan, env, ignore_platform=args.ignore_platform)
    write(variables_text(plan, "json" if args.output == "json" else args.shell, simulated=env.pretended), args.out)
    return 0
