"""Print the page of a rule, a setting, a profile, a known problem, or a call or error of the HIP or CUDA runtime.

Examples:
  rocsolid explain CFG001                           a rule, by code or by name
  rocsolid explain safe                             a profile: each value with its reason
  rocsolid explain inductor.triton.cudagraphs       a setting
  rocsolid explain TORCHINDUCTOR_MAX_AUTOTUNE       a variable
  rocsolid explain hip-graph-replay-corruption      a known problem
  rocsolid explain hipEventQuery                    what HIP and CUDA do with a call during a capture
  rocsolid explain 906                              what an error in a capture means
  rocsolid explain problems                         all known problems, a line each

"""

import argparse

from rocsolid.cli.output import add_output, write


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "name",
        metavar="CODE|ID|PROFILE|PROBLEM|CALL|ERROR",
        help="what to explain; `problems`, `rules` and `calls` list them",
    )
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Look the name up and print its page."""
    from rocsolid.report.page_index import listing

    text = listing(args.name)
    if text is None:
        from rocsolid.api.explain import explain

        text = explain(args.name)
    if args.output == "json":
        from rocsolid.model.codec import dumps

        write(dumps("rocsolid/page/1", name=args.name, markdown=text), args.out)
        return 0
    from rocsolid.report.terminal import Terminal, page_text, terminal_of

    write(page_text(text, Terminal() if args.out else terminal_of()), args.out)
    return 0
