"""A worker process of the linter.

It reads lists of files from standard input, one JSON list in a line. For each file it writes one line to standard output, separated
by tabs, which JSON text does not contain: the display path as JSON, the key for the cache, and the two parts of the file's facts.

It is started as a new program and not forked: forking would copy the caller's process, which may have torch and its threads
loaded. A crash of the parser ends only the worker.
"""

import gc
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocsolid.lint.check_file import check_text
from rocsolid.lint.fact_cache import cache_key
from rocsolid.lint.facts import FileFacts, summary_json

_FILES_PER_COLLECTION = 1000  # files between two garbage collections


def main() -> None:
    """Check all files. The line of a file is written before the next file is read, so a crash loses only one file."""
    gc.disable()  # syntax trees have no cycles; collecting them takes a third of the time
    out = sys.stdout
    for index, (path, display_path, module, package) in enumerate(_files(sys.stdin)):
        key = ""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            facts = FileFacts(module=module, error=error.strerror or str(error))
        else:
            key = cache_key(data, module)
            facts = check_text(data, file=display_path, module=module, package=package)
        out.write(f"{json.dumps(display_path)}\t{key}\t{summary_json(facts)}\t{facts.symbols_json}\n")
        out.flush()
        if index % _FILES_PER_COLLECTION == _FILES_PER_COLLECTION - 1:
            gc.collect()


def _files(lines: Iterable[str]) -> Iterator[tuple[str, str, str, bool]]:
    for line in lines:
        yield from json.loads(line)


if __name__ == "__main__":
    main()
