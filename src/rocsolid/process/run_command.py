"""Run another program with a deadline, so that it cannot block or crash the caller.

Vendor tools may hang, crash and leave children behind. So the program runs in its own session, and at the deadline the whole session
is killed. Its output goes to a file, because a grandchild may keep a pipe open forever. A child that cannot be killed, because it is
stuck in the kernel, is left running and reported.
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rocsolid.model.environment import CheckResult, CheckStatus

_GRACE_S = 1.0  # how long to wait for a killed child
_POLL_S = 0.1
_MAX_OUTPUT_BYTES = 4_000_000
_PACKAGE_FOLDER = str(Path(__file__).parents[2])  # contains rocsolid
_running: "set[subprocess.Popen[bytes]]" = set()
_starting = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, and how long it may take."""

    name: str
    command: Sequence[str]
    deadline_s: float = 5.0
    env: Mapping[str, str] | None = None
    on_wait: Callable[[], None] | None = None  # called a few times a second while the command runs


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """How a command ended, and what it printed."""

    check: CheckResult
    stdout: str
    stderr: str


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this rocsolid in a new process.

    `python -m` would first look for every module in the current folder, whose files may come from anybody.
    """
    code = (
        "import sys; '' in sys.path[:1] and sys.path.pop(0); "
        f"sys.path.insert(0, {_PACKAGE_FOLDER!r}); import rocsolid; sys.path.pop(0); "
        f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", code, *arguments]


def run_with_deadline(command: Command) -> CommandResult:
    """Run the command until it ends or exceeds its deadline."""
    if shutil.which(command.command[0]) is None:
        return CommandResult(check=CheckResult(name=command.name, status=CheckStatus.MISSING), stdout="", stderr="")
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = _start(command, out, err)
        except OSError as error:
            check = CheckResult(name=command.name, status=CheckStatus.FAILED, detail=str(error))
            return CommandResult(check=check, stdout="", stderr="")
        try:
            code = _wait(child, command)
            status, detail = _classify(code)
        except subprocess.TimeoutExpired:
            status, detail = CheckStatus.HUNG, f"no result within {command.deadline_s:g} s"
        finally:
            _kill_session(child)
            _running.discard(child)
            if child.returncode is None:  # it still returns its memory, or is stuck in the kernel
                threading.Thread(target=child.wait, daemon=True).start()
        stdout, stderr = _text(out), _text(err)
    check = CheckResult(
        name=command.name,
        status=status,
        detail=detail or ("" if status is CheckStatus.OK else _last_line(stderr or stdout)),
        seconds=round(time.monotonic() - started, 3),
    )
    return CommandResult(check=check, stdout=stdout, stderr=stderr)


def run_all_with_deadline(commands: Sequence[Command]) -> list[CommandResult]:
    """Run the commands at the same time; returns the results in the order of the commands."""
    if not commands:
        return []
    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(run_with_deadline, commands))


def _start(command: Command, out: IO[bytes], err: IO[bytes]) -> "subprocess.Popen[bytes]":
    with _starting:
        child = subprocess.Popen(  # noqa: S603 - commands are our own, never a shell
            command.command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env=None if command.env is None else dict(command.env),
        )
        _running.add(child)
    return child


def _wait(child: "subprocess.Popen[bytes]", command: Command) -> int:
    """Wait for the child; raises TimeoutExpired at the deadline."""
    if command.on_wait is None:
        return child.wait(command.deadline_s)
    ends = time.monotonic() + command.deadline_s
    while True:
        left_s = ends - time.monotonic()
        try:
            return child.wait(max(0.0, min(_POLL_S, left_s)))
        except subprocess.TimeoutExpired:
            if left_s <= 0:
                raise
        command.on_wait()


def _classify(code: int) -> tuple[CheckStatus, str]:
    if code == 0:
        return CheckStatus.OK, ""
    if code < 0:
        with contextlib.suppress(ValueError):
            return CheckStatus.CRASHED, signal.Signals(-code).name
        return CheckStatus.CRASHED, f"signal {-code}"
    return CheckStatus.FAILED, ""


def _kill_session(child: "subprocess.Popen[bytes]") -> None:
    """Kill all processes of the child's session, and wait for the child for at most the grace period."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_S)


@atexit.register
def _kill_all() -> None:
    """Leave no child behind when the program exits while one of its threads still waits for a command."""
    # The lock is held while a child is being started; without it, the program could exit before the child is in the set.
    if _starting.acquire(timeout=_GRACE_S):
        for child in tuple(_running):
            _kill_session(child)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MAX_OUTPUT_BYTES).decode(errors="replace")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
