"""List the code that Python runs when the interpreter starts, before the user's code."""

import importlib.machinery
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocsolid.model.environment import StartupHook
from rocsolid.probe.read_file import children, read_text


def startup_hooks(path: Iterable[str] | None = None) -> Iterator[StartupHook]:
    """Yield `sitecustomize`, `usercustomize`, and the lines of `.pth` files that run code."""
    folders = list(sys.path if path is None else path)
    for name in ("sitecustomize", "usercustomize"):
        spec = importlib.machinery.PathFinder.find_spec(name, folders)
        if spec and spec.origin:
            yield StartupHook(kind=name, file=spec.origin)
    for folder in dict.fromkeys(f for f in folders if f in _site_folders()):
        for file in children(Path(folder)):
            if file.suffix == ".pth":
                for line in read_text(file).splitlines():
                    if line.startswith(("import ", "import\t")):
                        yield StartupHook(kind="pth", file=str(file), code=line[:160])


def _site_folders() -> set[str]:
    return {*site.getsitepackages(), site.getusersitepackages()}
