"""Lists the code that runs at interpreter start, before the user's."""

import importlib.machinery
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocsolid.model.environment import Hook
from rocsolid.probe.read_file import children, read_text


def startup_hooks(path: Iterable[str] | None = None) -> Iterator[Hook]:
    """`sitecustomize`, `usercustomize`, and the lines of `.pth` files that run code."""
    folders = list(sys.path if path is None else path)
    for name in ("sitecustomize", "usercustomize"):
        spec = importlib.machinery.PathFinder.find_spec(name, folders)
        if spec and spec.origin:
            yield Hook(kind=name, place=spec.origin)
    for folder in dict.fromkeys(f for f in folders if f in _site_folders()):
        for file in children(Path(folder)):
            if file.suffix == ".pth":
                for line in read_text(file).splitlines():
                    if line.startswith(("import ", "import\t")):
                        yield Hook(kind="pth", place=str(file), says=line[:160])


def _site_folders() -> set[str]:
    return {*site.getsitepackages(), site.getusersitepackages()}
