"""Render a saved JSON result as text or HTML.

Examples:
  rocsolid report probe.json
  rocsolid report probe.json --output html --out probe.html

"""

import argparse
from pathlib import Path

from rocsolid.cli.output import add_output, read, write
from rocsolid.cli.records import read_record, render


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a JSON file that rocsolid wrote")
    parser.add_argument("-v", "--verbose", action="store_true", help="show notes in full")
    add_output(parser, ("text", "json", "sarif", "github", "html"))


def run(args: argparse.Namespace) -> int:
    """Read, then render as the command that wrote it would."""
    record = read_record(read(args.file), str(args.file))
    write(render(record, args.output, verbose=args.verbose, to_file=args.out is not None), args.out)
    return 0
