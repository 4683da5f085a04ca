"""One of the processes of `ranks`: answers about some files, left as JSON."""

import json
import sys
from pathlib import Path

from rocsolid.model.codec import encode
from rocsolid.trace.ranks import answer_one


def main(out: str, *files: str) -> None:
    """Read one file after another."""
    Path(out).write_text(json.dumps({file: encode(answer_one(Path(file))) for file in files}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
