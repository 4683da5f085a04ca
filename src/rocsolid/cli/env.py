"""Print the environment variables that a profile needs before a process starts, each with its reason.

Examples:
  eval "$(rocsolid env --profile fast)"             set them in this shell
  rocsolid env --profile fast --shell fish | source
  rocsolid env --profile safe --shell docker        ENV lines for a Dockerfile
  rocsolid env --profile debug --output json

"""

import argparse

from rocsolid.cli.output import add_output, write

SHELLS = ("bash", "fish", "docker", "json")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--profile", default="safe", help="profile whose variables are printed (default: safe)")
    parser.add_argument("--plan", metavar="FILE", help="use a saved plan instead of a profile")
    parser.add_argument(
        "--ignore-platform", action="store_true", help="accept a plan that was made for another platform"
    )
    parser.add_argument("--shell", choices=SHELLS, default="bash", help="format of the output (default: bash)")
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Resolve the profile for this machine and print its variables."""
    from rocsolid.api.safety import select_plan
    from rocsolid.probe.quick_facts import quick_environment
    from rocsolid.report.shell_variables import variables_text

    plan = select_plan(args.profile, args.plan, quick_environment(), ignore_platform=args.ignore_platform)
    write(variables_text(plan, "json" if args.output == "json" else args.shell), args.out)
    return 0
