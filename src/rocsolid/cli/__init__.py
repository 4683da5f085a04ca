"""The command line: parse the arguments, call the API, print the result, return the exit code."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    from rocsolid.cli.app import run

    return run(sys.argv[1:] if argv is None else list(argv))
