"""A process that checks files: names come in on standard input, facts go out on standard output, a line each.

It is started as a program of its own, so that a parser that dies takes nothing with it, and so that nothing of the
caller's process, which may hold torch and its threads, is copied.
"""

import gc
import json
import sys
from pathlib import Path

from rocsolid.lint.check_file import check_text
from rocsolid.lint.facts import Facts, head_text

_OFTEN = 200  # files between two collections


def main() -> None:
    """Check every file named; each answer is whole before the next file is begun."""
    gc.disable()  # trees have no cycles and are dropped at once; collecting among them costs a third of the time
    out = sys.stdout
    for number, (path, shown, module, package) in enumerate(json.load(sys.stdin)):
        try:
            data = Path(path).read_bytes()
        except OSError as refused:
            facts = Facts(module=module, refused=refused.strerror or str(refused))
        else:
            facts = check_text(data, file=shown, module=module, package=package)
        out.write(json.dumps([shown, head_text(facts), facts.body_text]) + "\n")
        out.flush()
        if number % _OFTEN == _OFTEN - 1:
            gc.collect()


if __name__ == "__main__":
    main()
