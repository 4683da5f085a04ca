"""Reads the effective settings in a fresh interpreter, and who set them on the way.

Run by the probe as `python -S -c …`: with `-S` nothing has happened yet, so the watch is in place before
`site` runs the `.pth` files and `sitecustomize` for real. The answer goes to a file, because hooks and
libraries print what they like.
"""

import contextlib
import importlib
import json
import os
import site
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from rocsolid.model.codec import encode
from rocsolid.torchapi.config import live
from rocsolid.torchapi.config.watch import Watch

# The first line undoes `python -c`, which would let a file in the current folder pose as a module.
# rocsolid is imported from where it is, and its folder taken off the path again before `site` runs.
BOOT = (
    "import sys; sys.path.remove('') if '' in sys.path else None; sys.path.insert(0, sys.argv[1]); "
    "from rocsolid.torchapi.config import read_in_child; sys.path.pop(0); read_in_child.main(sys.argv[2], sys.argv[3:])"
)


def command(answer: str, imports: Sequence[str]) -> list[str]:
    """The command line that writes its answer to the file `answer`; a person can run it by hand."""
    home = str(Path(__file__).parents[3])
    return [sys.executable, "-S", "-c", BOOT, home, answer, *imports]


def main(answer: str, imports: Sequence[str]) -> None:
    """Import what a user's program would, then write down every entry and every assignment."""
    failed: dict[str, str] = {}
    warnings.simplefilter("ignore")
    with Watch() as watch:
        watch.phase = "startup"
        site.main()
        for phase, names in (("torch", live.MODULES.values()), *((f"import {n}", [n]) for n in imports)):
            watch.phase = phase
            for name in names:
                try:
                    importlib.import_module(name)
                except Exception as error:  # noqa: BLE001 - a library may raise anything; what it raised is the answer
                    failed[name] = f"{type(error).__name__}: {error}"
        entries = live.read(live.loaded())
    document = {"entries": encode(entries), "writes": encode(watch.writes), "failed": failed}
    Path(answer).write_text(json.dumps(document), encoding="utf-8")
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    # What a library registered to run at exit is none of our business here.
    os._exit(0)
