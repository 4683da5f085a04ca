"""Explain a rule, setting, profile, known problem, a call or error of the HIP or CUDA runtime, or a cause of idle time.

Examples:
  rocsolid explain CFG001                           a rule, by code or by name
  rocsolid explain safe                             a profile: its values, each with the reason
  rocsolid explain inductor.max_autotune            a setting; `max_autotune` alone works too
  rocsolid explain TORCHINDUCTOR_MAX_AUTOTUNE       an environment variable
  rocsolid explain hip-graph-replay-corruption      a known problem
  rocsolid explain hipEventQuery                    what HIP and CUDA do with this call during a capture
  rocsolid explain 906                              what this error means during a capture
  rocsolid explain late-launch                      a cause of idle time in a trace, and what removes it
  rocsolid explain max_autotune --target gfx942     also what the profiles choose on an MI300X, and which values are harmful
  rocsolid explain problems                         list all known problems (also: rules, settings, profiles, calls)

"""

import argparse

from rocsolid.cli.output import add_output, write
from rocsolid.cli.target import add_target, on_target


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "name",
        metavar="CODE|ID|PROFILE|PROBLEM|CALL|ERROR|CAUSE",
        help="what to explain; the words problems, rules, settings, profiles and calls list all names of that kind",
    )
    add_target(parser)
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Print the page of the name, or the list of names."""
    from rocsolid.report.page_index import list_names

    text = list_names(args.name)
    if text is None:
        from rocsolid.api.explain import explain

        with on_target(args):
            text = explain(args.name)
    if args.output == "json":
        from rocsolid.model.codec import dumps

        write(dumps("rocsolid/page/1", name=args.name, markdown=text), args.out)
        return 0
    from rocsolid.report.terminal import Terminal, page_text, terminal_of

    write(page_text(text, Terminal() if args.out else terminal_of()), args.out)
    return 0
