"""A commit as a side of a comparison: its files in a work tree of their own, which is gone afterwards."""

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

_PREFIX: Final = "rocsolid-ab-"  # then the number of the process, by which leftovers of a killed one are told


@contextmanager
def checked_out(file: Path, revision: str) -> Iterator[Path]:
    """The file as it is in that commit; the work tree around it goes away with the block, also on SIGTERM."""
    root = Path(_git(file.resolve().parent, "rev-parse", "--show-toplevel").strip())
    _clear_up_after_the_dead(root)
    try:
        _git(root, "rev-parse", "--verify", "-q", f"{revision}^{{commit}}")
    except CannotRunError as unknown:
        branches = _git(root, "for-each-ref", "--format=%(refname:short)").split()
        raise UnknownNameError(kind="commit", name=revision, known=branches) from unknown
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    tree = folder / "tree"
    try:
        with _ended_politely():
            _git(root, "worktree", "add", "--detach", "--force", str(tree), revision)
            there = tree / file.resolve().relative_to(root)
            if not there.is_file():
                msg = f"the workload's file {there.relative_to(tree)} does not exist in {revision}"
                raise InputError(msg)
            yield there
    finally:
        _remove(root, folder)


def variables_in(there: Path, file: Path) -> dict[str, str]:
    """What makes a trial import the commit's modules: its folders come first, also before what is installed as editable."""
    root, tree = _root_of(file, there)
    given = [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    moved = [tree / p.resolve().relative_to(root) if p.resolve().is_relative_to(root) else p for p in given]
    own = [folder for folder in (tree / "src", tree) if folder.is_dir()]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(str(path) for path in (*own, *moved)))}


def _root_of(file: Path, there: Path) -> tuple[Path, Path]:
    """The two trees: what is left of both paths when their common end is taken off."""
    root = Path(_git(file.resolve().parent, "rev-parse", "--show-toplevel").strip())
    depth = len(file.resolve().relative_to(root).parts)
    return root, there.parents[depth - 1]


def _remove(root: Path, folder: Path) -> None:
    with suppress(CannotRunError):  # the folder goes in any case
        _git(root, "worktree", "remove", "--force", str(folder / "tree"))
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(CannotRunError):
        _git(root, "worktree", "prune")


def _clear_up_after_the_dead(root: Path) -> None:
    """Nobody can clear up after a SIGKILL, so the next one does."""
    for line in _git(root, "worktree", "list", "--porcelain").splitlines():
        folder = Path(line.removeprefix("worktree ")).parent
        if line.startswith("worktree ") and folder.name.startswith(_PREFIX):
            owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if not Path(f"/proc/{owner}").exists():
                _remove(root, folder)


@contextmanager
def _ended_politely() -> Iterator[None]:
    """SIGTERM unwinds the stack like Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _git(folder: Path, *words: str) -> str:
    try:
        command = ["git", "-C", str(folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - git has parsed the revision
    except OSError as missing:
        msg = "commits are compared with git, and it is not installed"
        raise CannotRunError(msg) from missing
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        msg = f"git {words[0]} failed in {folder}: {said}"
        raise CannotRunError(msg)
    return done.stdout
