"""Render a saved JSON result as text or HTML.

Examples:
  rocsolid report probe.json
  rocsolid report probe.json --output html --out probe.html
  rocsolid report compiles.json --output html --out compiles.html
  rocsolid report trace.json
  rocsolid report lint.json --output html --out lint.html

"""

import argparse
import os
from pathlib import Path

from rocsolid.cli.crash import DEBUG_VARIABLE
from rocsolid.cli.output import add_output, read, write
from rocsolid.cli.records import read_record, render_any
from rocsolid.errors import InputError, first_line


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a JSON file that rocsolid wrote with --output json")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show INFO findings in full, and the source of kernels"
    )
    add_output(parser, ("text", "json", "sarif", "github", "html"))


def run(args: argparse.Namespace) -> int:
    """Read the file and render it in the chosen format."""
    record = read_record(read(args.file), str(args.file))
    try:
        text = render_any(record, args.output, verbose=args.verbose, to_file=args.out is not None)
    except (ArithmeticError, ValueError, LookupError, RecursionError) as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        msg = f"{args.file}: its values do not fit together: {type(error).__name__}: {first_line(error)}"
        raise InputError(msg) from error
    write(text, args.out)
    return 0
