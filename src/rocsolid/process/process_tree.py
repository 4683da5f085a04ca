"""The processes of a trial: found, weighed and ended. Linux and the standard library only.

The caller is a subreaper, so whatever loses its parent becomes the caller's child: the descendants of the caller are the whole
trial, whichever sessions, groups and environments they gave themselves.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOKEN: Final = "ROCSOLID_TRIAL"  # noqa: S105 - a mark in the environment of every process of a trial, no secret
_PDEATHSIG, _SUBREAPER = 1, 36
_KB, _SHORT_PAUSE_S = 1024, 0.02
_DEAD: Final = ("Z", "X")
POLITE: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what a terminal or a user sends


@dataclass(frozen=True)
class Process:
    """One line of /proc."""

    pid: int
    state: str
    parent: int


def become_subreaper() -> None:
    """Take in every descendant that loses its parent."""
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> Callable[[], None]:
    """What a child runs between fork and exec.

    It ends with its parent, leaves no core file, and is the first to go when the host runs out of memory. Signals that the
    parent ignores mean again what they mean: a program that ends its workers with one would wait for them for ever.
    """
    import resource

    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in POLITE:
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")

    return prepare


def processes() -> dict[int, Process]:
    """Every process there is."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - ten times a second
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_bytes().decode("utf-8", "replace")
            except OSError:  # it has just gone
                continue
            state, parent = text[text.rindex(")") + 2 :].split(maxsplit=2)[:2]
            found[int(name)] = Process(int(name), state, int(parent))
    return found


def descendants(root: int) -> dict[int, Process]:
    """All that came from `root` and are still alive."""
    everything = processes()
    children: dict[int, list[int]] = {}
    for process in everything.values():
        children.setdefault(process.parent, []).append(process.pid)
    found, waiting = {}, list(children.get(root, []))
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = everything[pid]
            waiting += children.get(pid, [])
    return {pid: process for pid, process in found.items() if process.state not in _DEAD}


def carriers(token: str) -> list[int]:
    """Living processes that were started with this token in their environment."""
    mark = f"{TOKEN}={token}".encode()
    found = []
    for process in processes().values():
        try:
            held = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in held and process.state not in _DEAD:
            found.append(process.pid)
    return found


def memory_bytes(pid: int) -> int:
    """What a process holds, pages that it shares counted in part; as a whole where we may not look."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * _KB
    except OSError:
        pass
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def end_all(root: int, *, keep: int, patience_s: float = 10.0) -> tuple[int, list[Process]]:
    """End every descendant of `root`: stop them all, look again, kill, until none is left.

    Returns how many were killed and which would not die. `keep` is the child whose exit status the caller wants for itself.
    """
    killed: set[int] = set()
    give_up = time.monotonic() + patience_s
    while True:
        for pid in descendants(root):  # what is stopped cannot fork between the look and the kill
            if pid not in killed:
                _signal(pid, signal.SIGSTOP)
        for pid in descendants(root):
            killed.add(pid)
            _signal(pid, signal.SIGKILL)
        _reap(root, keep)
        left = descendants(root)
        if not left:
            return len(killed), []
        if time.monotonic() > give_up:  # in state D it sits in the driver, and nothing in user space can end it
            return len(killed), list(left.values())
        time.sleep(_SHORT_PAUSE_S)


def kernel_kills() -> int:
    """How often the kernel has ended a process for want of memory."""
    for line in _lines("/proc/vmstat"):
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def _signal(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)


def _reap(root: int, keep: int) -> None:
    for process in processes().values():
        if process.parent == root and process.pid != keep and process.state in _DEAD:
            with suppress(OSError):
                os.waitpid(process.pid, os.WNOHANG)
