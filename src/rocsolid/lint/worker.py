"""A worker process that checks files: reads file names from standard input, writes facts to standard output, one line each.

It is a separate program instead of a fork, so that a crash of the parser ends only the worker, and so that the caller's process,
which may have torch and its threads loaded, is not copied.
"""

import gc
import json
import sys
from pathlib import Path

from rocsolid.lint.check_file import check_text
from rocsolid.lint.facts import FileFacts, head_text

_COLLECT_EVERY = 200  # files between two garbage collections


def main() -> None:
    """Check all files; the line of one is complete before the next starts."""
    gc.disable()  # syntax trees have no cycles; collecting them takes a third of the time
    out = sys.stdout
    for number, (path, shown, module, package) in enumerate(json.load(sys.stdin)):
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            facts = FileFacts(module=module, error=error.strerror or str(error))
        else:
            facts = check_text(data, file=shown, module=module, package=package)
        out.write(json.dumps([shown, head_text(facts), facts.body_text]) + "\n")
        out.flush()
        if number % _COLLECT_EVERY == _COLLECT_EVERY - 1:
            gc.collect()


if __name__ == "__main__":
    main()
