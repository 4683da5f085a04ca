"""Set two profiled runs side by side: kernels added, gone, faster, slower, and idle time by its cause.

Examples:
  rocsolid compare before.json.gz after.json.gz
  rocsolid compare h100.json.gz mi300x.json.gz             across vendors: kernels are matched by operator and place
  rocsolid compare before.json.gz after.json.gz --output html --out compare.html
  rocsolid compare answers-before.json answers-after.json   what rocsolid trace --output json wrote will do too

"""

import argparse
from pathlib import Path

from rocsolid.cli.output import add_output, write


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a trace, or the saved answers about one")
    parser.add_argument("after", type=Path, metavar="AFTER", help="another")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every kernel")
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Read both, compare, show."""
    from rocsolid.api.trace import compare

    difference = compare(args.before, args.after)
    if args.output == "json":
        from rocsolid.model.codec import dumps
        from rocsolid.model.trace import TRACE_DIFFERENCE_SCHEMA

        write(dumps(TRACE_DIFFERENCE_SCHEMA, difference=difference), args.out)
        return 0
    if args.output == "html":
        from rocsolid.report.compare_page import difference_html

        write(difference_html(difference), args.out)
        return 0
    from rocsolid.report.terminal import Terminal, terminal_of
    from rocsolid.report.trace_text import difference_text

    terminal = Terminal() if args.out else terminal_of()
    write(difference_text(difference, terminal, verbose=args.verbose), args.out)
    return 0
