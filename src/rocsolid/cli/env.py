"""Print the variables that must be set before a process starts, for a profile, with the reason of each.

Examples:
  eval "$(rocsolid env --profile fast)"             for this shell
  rocsolid env --profile fast --shell fish | source
  rocsolid env --profile safe --shell docker        ENV lines for a Dockerfile
  rocsolid env --profile debug --output json

"""

import argparse

from rocsolid.cli.output import add_output, write

SHELLS = ("bash", "fish", "docker", "json")


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--profile", default="safe", help="whose variables (default: safe)")
    parser.add_argument("--plan", metavar="FILE", help="a saved plan in place of the profile")
    parser.add_argument(
        "--anywhere", action="store_true", help="use the plan even when it was made for another platform"
    )
    parser.add_argument("--shell", choices=SHELLS, default="bash", help="for whom the text is (default: bash)")
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Resolve the profile for this machine and print its variables."""
    from rocsolid.api.safety import chosen_plan
    from rocsolid.probe.quick_facts import quick_environment
    from rocsolid.report.shell_variables import variables_text

    plan = chosen_plan(args.profile, args.plan, quick_environment(), anywhere=args.anywhere)
    write(variables_text(plan, "json" if args.output == "json" else args.shell), args.out)
    return 0
