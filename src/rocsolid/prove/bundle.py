"""Writes rocsolid and the data of its checks into one file that Python runs, for machines without a checkout."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocsolid.prove.check import KIT
from rocsolid.prove.facts import kit_files

_PACKAGE: Final = Path(__file__).parents[1]
# The checks start child processes that read files, so the archive is unpacked before anything runs.
_MAIN: Final = '''\
"""rocsolid prove, with everything that its checks need: python rocsolid-prove.pyz [--minutes 15]"""

import hashlib
import os
import sys
import tempfile
import zipfile
from pathlib import Path

archive = Path(sys.argv[0]).resolve()
digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
folder = Path(tempfile.gettempdir(), f"rocsolid-prove-{os.getuid()}-{digest}")
if not (folder / "complete").exists():
    folder.mkdir(mode=0o700, exist_ok=True)
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    (folder / "complete").touch()
if folder.stat().st_uid != os.getuid():
    sys.exit(f"{folder} belongs to another user")
paths = [str(folder / "src"), str(folder), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
# Not `python -m`, which looks for modules in the current folder first.
code = "import sys; '' in sys.path[:1] and sys.path.pop(0); import runpy; runpy.run_module('rocsolid', run_name='__main__')"
os.execv(sys.executable, [sys.executable, "-c", code, "prove", *sys.argv[1:]])
'''


def bundled_files() -> Iterator[tuple[Path, str]]:
    """Yield each file and its name in the archive; the layout is that of a checkout."""
    for file in sorted(_PACKAGE.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, f"src/rocsolid/{file.relative_to(_PACKAGE)}"
    for file in kit_files():
        yield file, str(file.relative_to(KIT))


def write_bundle(target: Path) -> int:
    """Write the archive, and return how many files it has."""
    names: set[str] = set()
    unfinished = target.with_name(f"{target.name}.part")
    try:
        with unfinished.open("wb") as opened:
            opened.write(b"#!/usr/bin/env python3\n")
            with zipfile.ZipFile(opened, "w", zipfile.ZIP_DEFLATED) as packed:
                packed.writestr("__main__.py", _MAIN)
                for file, name in bundled_files():
                    if name not in names:
                        packed.write(file, name)
                        names.add(name)
        unfinished.chmod(0o755)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return len(names)
