"""The processes of a trial: find them, measure their memory, end them. Linux and the standard library only.

The caller is a subreaper: a descendant whose parent ends becomes a child of the caller. So the descendants of the caller are all
processes of the trial, whatever sessions, process groups and environments they use.
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

from rocsolid.process.parent_death import parent_death_request

TRIAL_VARIABLE: Final = "ROCSOLID_TRIAL"  # holds the trial's id in the environment of each of its processes
TERMINATION_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what a terminal or a user sends
_PR_SET_CHILD_SUBREAPER: Final = 36  # from <sys/prctl.h>
_KB, _PAUSE_S = 1024, 0.02
_DEAD_STATES: Final = ("Z", "X")  # zombie, dead


@dataclass(frozen=True)
class Process:
    """One process, as /proc/PID/stat describes it."""

    pid: int
    state: str
    parent: int


def become_subreaper() -> None:
    """Make this process the parent of every descendant whose own parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def child_setup() -> Callable[[], None]:
    """Return the function that a child runs between fork and exec.

    The child then ends with its parent, writes no core file, and is the first to be killed when the host runs out of memory.
    Signals that the parent ignores get their default action back; otherwise a program that ends its workers with such a signal
    would wait for them forever.
    """
    import resource

    request_parent_death_signal = parent_death_request()

    def prepare() -> None:
        request_parent_death_signal()
        for number in TERMINATION_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")

    return prepare


def all_processes() -> dict[int, Process]:
    """Return every process of the system, by pid."""
    processes = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - called ten times a second
        if name.isdigit():
            try:
                text = Path(f"/proc/{name}/stat").read_bytes().decode("utf-8", "replace")
            except OSError:  # it has just ended
                continue
            state, parent = text[text.rindex(")") + 2 :].split(maxsplit=2)[:2]
            processes[int(name)] = Process(int(name), state, int(parent))
    return processes


def descendants(root: int) -> dict[int, Process]:
    """Return the running children of `root`, their children, and so on."""
    processes = all_processes()
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found, waiting = {}, list(children.get(root, []))
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = processes[pid]
            waiting += children.get(pid, [])
    return {pid: process for pid, process in found.items() if process.state not in _DEAD_STATES}


def processes_of_trial(trial_id: str) -> list[int]:
    """Return the running processes that were started with this trial id in their environment."""
    entry = f"{TRIAL_VARIABLE}={trial_id}".encode()
    found = []
    for process in all_processes().values():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if entry in environment and process.state not in _DEAD_STATES:
            found.append(process.pid)
    return found


def memory_bytes(pid: int) -> int:
    """Return the memory of a process: its proportional set size (shared pages are divided), or else its resident set size."""
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


def kill_descendants(root: int, *, keep_status_of: int, timeout_s: float = 10.0) -> tuple[int, list[Process]]:
    """Kill every descendant of `root`: stop all, list them again, kill them, and repeat until none is left.

    Returns how many were killed, and those that could not be killed. The exit status of the child `keep_status_of` is left for
    the caller to read.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while True:
        for pid in descendants(root):  # a stopped process cannot fork between the listing and the kill
            if pid not in killed:
                _signal(pid, signal.SIGSTOP)
        for pid in descendants(root):
            killed.add(pid)
            _signal(pid, signal.SIGKILL)
        _reap(root, keep_status_of)
        left = descendants(root)
        if not left:
            return len(killed), []
        if time.monotonic() > deadline:  # state D: blocked in the driver, and user space cannot end it
            return len(killed), list(left.values())
        time.sleep(_PAUSE_S)


def oom_kill_count() -> int:
    """Return how many processes the kernel has killed since boot because memory ran out."""
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


def _reap(root: int, keep_status_of: int) -> None:
    for process in all_processes().values():
        if process.parent == root and process.pid != keep_status_of and process.state in _DEAD_STATES:
            with suppress(OSError):
                os.waitpid(process.pid, os.WNOHANG)
