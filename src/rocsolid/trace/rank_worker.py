"""One of the processes of `ranks`: answers about some files, left for the one that started it."""

import pickle
import sys
from pathlib import Path

from rocsolid.errors import InputError
from rocsolid.measure.gc_pause import gc_disabled
from rocsolid.model.trace import TraceFile
from rocsolid.trace.analysis import answer
from rocsolid.trace.read import read_trace


def answer_one(file: Path) -> TraceFile | str:
    """One file in one process; one that is no trace becomes its line."""
    try:
        with gc_disabled():
            return answer(file, read_trace(file, alone=True))
    except InputError as refused:
        return str(refused)


def main(out: str, *files: str) -> None:
    """Read one file after another."""
    Path(out).write_bytes(pickle.dumps({Path(file): answer_one(Path(file)) for file in files}))


if __name__ == "__main__":
    main(*sys.argv[1:])
