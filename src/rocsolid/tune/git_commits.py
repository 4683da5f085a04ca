"""A commit as one side of an A/B test: its files in a temporary git work tree."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from rocsolid.errors import CannotRunError, InputError, UnknownNameError

_PREFIX: Final = (
    "rocsolid-ab-"  # followed by the process id, so that work trees left by a killed process are recognised
)


@contextmanager
def checked_out(file: Path, revision: str) -> Iterator[Path]:
    """Check the commit out in a temporary work tree, and yield the path of the file there.

    The work tree is removed after the block, also on SIGTERM.
    """
    root = Path(_git(file.resolve().parent, "rev-parse", "--show-toplevel").strip())
    _remove_leftovers(root)
    try:
        _git(root, "rev-parse", "--verify", "-q", f"{revision}^{{commit}}")
    except CannotRunError as unknown:
        branches = _git(root, "for-each-ref", "--format=%(refname:short)").split()
        raise UnknownNameError(kind="commit", name=revision, known=branches) from unknown
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    tree = folder / "tree"
    try:
        with _sigterm_raises():
            _git(root, "worktree", "add", "--detach", "--force", str(tree), revision)
            tree_file = tree / file.resolve().relative_to(root)
            if not tree_file.is_file():
                msg = f"the workload file {tree_file.relative_to(tree)} does not exist in {revision}"
                raise InputError(msg)
            yield tree_file
    finally:
        _remove(root, folder)


def import_variables(tree_file: Path, file: Path) -> dict[str, str]:
    """Return the PYTHONPATH with which a trial imports the commit's modules, even if the project is installed as editable."""
    root, tree = _roots(file, tree_file)
    current = [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    moved = [tree / p.resolve().relative_to(root) if p.resolve().is_relative_to(root) else p for p in current]
    added = [folder for folder in (tree / "src", tree) if folder.is_dir()]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(str(path) for path in (*added, *moved)))}


def _roots(file: Path, tree_file: Path) -> tuple[Path, Path]:
    """The roots of the user's tree and of the temporary tree."""
    root = Path(_git(file.resolve().parent, "rev-parse", "--show-toplevel").strip())
    depth = len(file.resolve().relative_to(root).parts)
    return root, tree_file.parents[depth - 1]


def _remove(root: Path, folder: Path) -> None:
    with suppress(CannotRunError):  # the folder is removed in any case
        _git(root, "worktree", "remove", "--force", str(folder / "tree"))
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(CannotRunError):
        _git(root, "worktree", "prune")


def _remove_leftovers(root: Path) -> None:
    """Remove the work trees of processes that were killed with SIGKILL and could not clean up."""
    for line in _git(root, "worktree", "list", "--porcelain").splitlines():
        folder = Path(line.removeprefix("worktree ")).parent
        if line.startswith("worktree ") and folder.name.startswith(_PREFIX):
            owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if not Path(f"/proc/{owner}").exists():
                _remove(root, folder)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM raises SystemExit inside the block, so that clean-up code runs as after Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    previous_handler = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _git(folder: Path, *words: str) -> str:
    try:
        command = ["git", "-C", str(folder), *words]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - git has parsed the revision
    except OSError as missing:
        msg = "git:REVISION needs git, but git is not installed"
        raise CannotRunError(msg) from missing
    if completed.returncode:
        error = completed.stderr.strip().rpartition("\n")[2]
        msg = f"git {words[0]} failed in {folder}: {error}"
        raise CannotRunError(msg)
    return completed.stdout
