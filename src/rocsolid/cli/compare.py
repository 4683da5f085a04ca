"""Compare two traces: kernels added, removed, faster and slower, and idle time by cause.

Examples:
  rocsolid compare before.json.gz after.json.gz
  rocsolid compare h100.json.gz mi300x.json.gz             across vendors: work is matched by operator, shape and order
  rocsolid compare before.json.gz after.json.gz --stacks   also the time by nn.Module
  rocsolid compare before.json.gz after.json.gz --output html --out compare.html
  rocsolid compare before-report.json after-report.json    reports that rocsolid trace --output json wrote

"""

import argparse
from pathlib import Path

from rocsolid.cli.output import add_output, write


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    help_text = "a trace, or a report that rocsolid trace --output json wrote"
    parser.add_argument("before", type=Path, metavar="BEFORE", help=help_text)
    parser.add_argument("after", type=Path, metavar="AFTER", help=help_text)
    parser.add_argument("--stacks", action="store_true", help="also compare the time by module, from Python functions")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every kernel")
    add_output(parser, ("text", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Compare the traces and print the result."""
    from rocsolid.api.trace import compare
    from rocsolid.model.redact import redact_all

    comparison = redact_all(compare(args.before, args.after, stacks=args.stacks))
    if args.output == "json":
        from rocsolid.model.codec import dumps
        from rocsolid.model.trace import TRACE_COMPARISON_SCHEMA

        write(dumps(TRACE_COMPARISON_SCHEMA, comparison=comparison), args.out)
        return 0
    if args.output == "html":
        from rocsolid.report.compare_page import comparison_html

        write(comparison_html(comparison), args.out)
        return 0
    from rocsolid.report.terminal import Terminal, terminal_of
    from rocsolid.report.trace_text import comparison_text

    terminal = Terminal() if args.out else terminal_of()
    write(comparison_text(comparison, terminal, verbose=args.verbose), args.out)
    return 0
