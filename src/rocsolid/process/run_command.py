"""Asks another program something, without ever being taken down by it.

Vendor libraries hang, crash and leave children behind. So a question goes to a child in a session of its own; its
output goes to a file, because a grandchild may keep a pipe open for ever; at the deadline the whole session is killed;
and a child that even then stays, stuck in the kernel, is left alone and reported.
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from rocsolid.model.environment import CheckResult, CheckStatus

_GRACE_S = 1.0
_MOST_OUTPUT_BYTES = 4_000_000
_asked: "set[subprocess.Popen[bytes]]" = set()  # those whose answer is still out
_starting = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Question:
    """A command, and how long it may take."""

    name: str
    command: Sequence[str]
    deadline_s: float = 5.0
    env: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """How it ended, and what was printed."""

    answer: CheckResult
    output: str
    errors: str


def ask(question: Question) -> Reply:
    """Run the command to its end or to its deadline, whichever comes first."""
    if shutil.which(question.command[0]) is None:
        return Reply(answer=CheckResult(name=question.name, status=CheckStatus.MISSING), output="", errors="")
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = _start(question, out, err)
        except OSError as refused:
            answer = CheckResult(name=question.name, status=CheckStatus.FAILED, detail=str(refused))
            return Reply(answer=answer, output="", errors="")
        try:
            code = child.wait(question.deadline_s)
            ending, detail = _ending(code)
        except subprocess.TimeoutExpired:
            ending, detail = CheckStatus.HUNG, f"silent after {question.deadline_s:g} s"
        finally:
            _end_session(child)
            _asked.discard(child)
        texts = [_text(file) for file in (out, err)]
    answer = CheckResult(
        name=question.name,
        status=ending,
        detail=detail or ("" if ending is CheckStatus.OK else _last_line(*texts)),
        seconds=round(time.monotonic() - started, 3),
    )
    return Reply(answer=answer, output=texts[0], errors=texts[1])


def _start(question: Question, out: IO[bytes], err: IO[bytes]) -> "subprocess.Popen[bytes]":
    with _starting:
        child = subprocess.Popen(  # noqa: S603 - commands are our own, never a shell
            question.command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env=None if question.env is None else dict(question.env),
        )
        _asked.add(child)
    return child


def ask_all(questions: Sequence[Question]) -> list[Reply]:
    """Ask side by side, and answer in the order asked."""
    if not questions:
        return []
    with ThreadPoolExecutor(len(questions)) as pool:
        return list(pool.map(ask, questions))


def _ending(code: int) -> tuple[CheckStatus, str]:
    if code == 0:
        return CheckStatus.OK, ""
    if code < 0:
        with contextlib.suppress(ValueError):
            return CheckStatus.CRASHED, signal.Signals(-code).name
        return CheckStatus.CRASHED, f"signal {-code}"
    return CheckStatus.FAILED, ""


def _end_session(child: "subprocess.Popen[bytes]") -> None:
    """Kill whatever is left of the child's session; wait for the child, but not for ever."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_S)


@atexit.register
def _end_all() -> None:
    """A program that ends while a thread of its own still waits for an answer leaves nobody behind."""
    # A child that is just being born is waited for: otherwise the program could end between its birth and its being known.
    if _starting.acquire(timeout=_GRACE_S):
        for child in tuple(_asked):
            _end_session(child)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_OUTPUT_BYTES).decode(errors="replace")


def _last_line(output: str, errors: str) -> str:
    lines = [line.strip() for line in (errors or output).splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
