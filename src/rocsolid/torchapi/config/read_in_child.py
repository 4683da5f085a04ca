"""Reads the effective settings in a fresh interpreter, and the lines of code that assigned them.

The probe runs this as `python -S -c …`. With `-S` Python runs no start-up files, so `ConfigWatch` is installed before
`site` runs the `.pth` files and `sitecustomize`. The result goes to a file, because start-up hooks and libraries
may print to stdout.
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
from rocsolid.torchapi.config.watch import ConfigWatch

# `python -c` puts the current folder on sys.path, where a file could hide a module of the same name: remove it.
# rocsolid is imported from its own folder, which is removed from the path again before `site` runs.
_CODE = (
    "import sys; sys.path.remove('') if '' in sys.path else None; sys.path.insert(0, sys.argv[1]); "
    "from rocsolid.torchapi.config import read_in_child; sys.path.pop(0); read_in_child.main(sys.argv[2], sys.argv[3:])"
)


def command(output: str, imports: Sequence[str]) -> list[str]:
    """Return the command line that writes the result to the file `output`."""
    package_folder = str(Path(__file__).parents[3])
    return [sys.executable, "-S", "-c", _CODE, package_folder, output, *imports]


def main(output: str, imports: Sequence[str]) -> None:
    """Import what a user's program would import, then write every entry and every assignment to a file."""
    import_errors: dict[str, str] = {}
    warnings.simplefilter("ignore")
    with ConfigWatch() as watch:
        watch.phase = "startup"
        site.main()
        for phase, names in (("torch", live.MODULES.values()), *((f"import {n}", [n]) for n in imports)):
            watch.phase = phase
            for name in names:
                try:
                    importlib.import_module(name)
                except Exception as error:  # noqa: BLE001 - a library may raise anything; the error is part of the result
                    import_errors[name] = f"{type(error).__name__}: {error}"
        entries = live.read_entries(live.imported_modules())
    document = {"entries": encode(entries), "writes": encode(watch.writes), "failed": import_errors}
    Path(output).write_text(json.dumps(document), encoding="utf-8")
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    # Skip the exit handlers that libraries registered.
    os._exit(0)
