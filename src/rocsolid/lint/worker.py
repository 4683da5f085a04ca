"""A worker process of the linter.

It reads the list of files as JSON from standard input. For each file it writes one line to standard output: a JSON list with the
display path and the two parts of the file's facts.

It is started as a new program and not forked: forking would copy the caller's process, which may have torch and its threads
loaded. A crash of the parser ends only the worker.
"""

import gc
import json
import sys
from pathlib import Path

from rocsolid.lint.check_file import check_text
from rocsolid.lint.facts import FileFacts, summary_json

_FILES_PER_COLLECTION = 200  # files between two garbage collections


def main() -> None:
    """Check all files. The line of a file is written before the next file is read, so a crash loses only one file."""
    gc.disable()  # syntax trees have no cycles; collecting them takes a third of the time
    out = sys.stdout
    for index, (path, display_path, module, package) in enumerate(json.load(sys.stdin)):
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            facts = FileFacts(module=module, error=error.strerror or str(error))
        else:
            facts = check_text(data, file=display_path, module=module, package=package)
        out.write(json.dumps([display_path, summary_json(facts), facts.symbols_json]) + "\n")
        out.flush()
        if index % _FILES_PER_COLLECTION == _FILES_PER_COLLECTION - 1:
            gc.collect()


if __name__ == "__main__":
    main()
