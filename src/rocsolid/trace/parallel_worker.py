"""The second process of `parallel`: reads its half and leaves the columns in a folder."""

import sys
from pathlib import Path

from rocsolid.trace.column_files import save
from rocsolid.trace.kineto import read_kineto
from rocsolid.trace.parallel import share_of


def main(file: str, first: str, layout: str, out: str) -> None:
    """Read from a border to the end of the file."""
    save(read_kineto(Path(file), share_of(first, layout)), Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
