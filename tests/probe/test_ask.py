"""Asking a program that hangs, crashes or leaves children behind."""

import os
import sys
import time
from pathlib import Path

import pytest
from tests.support import run_python

from rocsolid.model.environment import CheckStatus
from rocsolid.process.run_command import Question, ask, ask_all


def python(code: str, deadline_s: float = 10) -> Question:
    return Question(name="child", command=(sys.executable, "-c", code), deadline_s=deadline_s)


def test_an_answer_comes_with_its_output() -> None:
    reply = ask(python("print('hello')"))

    assert (reply.answer.status, reply.output) == (CheckStatus.OK, "hello\n")


def test_an_error_is_told_by_its_last_line() -> None:
    reply = ask(python("raise SystemExit('no driver')"))

    assert (reply.answer.status, reply.answer.detail) == (CheckStatus.FAILED, "no driver")


def test_a_crash_is_told_by_its_signal() -> None:
    reply = ask(python("import os; os.abort()"))

    assert (reply.answer.status, reply.answer.detail) == (CheckStatus.CRASHED, "SIGABRT")


def test_a_program_that_is_not_there_is_missing() -> None:
    assert ask(Question(name="x", command=("no-such-program",))).answer.status is CheckStatus.MISSING


def test_a_hang_costs_its_deadline_and_nothing_else() -> None:
    started = time.monotonic()
    reply = ask(python("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", 0.5))

    assert reply.answer.status is CheckStatus.HUNG
    assert reply.answer.detail == "silent after 0.5 s"
    assert time.monotonic() - started < 30


def test_a_grandchild_that_holds_the_output_open_does_not_hold_us(tmp_path: Path) -> None:
    """The tool itself ends; what it left behind in its session goes with it."""
    note = tmp_path / "pid"
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(note)!r}, "w").write(str(child.pid))
print("done")
"""
    started = time.monotonic()
    reply = ask(python(code))

    assert (reply.answer.status, reply.output) == (CheckStatus.OK, "done\n")
    assert time.monotonic() - started < 30
    assert _is_gone(int(note.read_text()))


def _is_gone(pid: int) -> bool:
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if Path(f"/proc/{pid}").exists()
            else "X"
        )
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_several_are_asked_side_by_side() -> None:
    started = time.monotonic()
    replies = ask_all([python(f"import time; time.sleep(4); print({n})") for n in (1, 2)])

    assert [r.output for r in replies] == ["1\n", "2\n"]
    assert time.monotonic() - started < 7.5
    assert ask_all([]) == []


@pytest.mark.parametrize("flood", [10_000_000])
def test_a_flood_of_output_is_cut(flood: int) -> None:
    reply = ask(python(f"print('x' * {flood})"))

    assert len(reply.output) == 4_000_000


def test_a_program_that_ends_leaves_no_child_behind(tmp_path: Path) -> None:
    script = (
        "import threading, time\n"
        "from rocsolid.process.run_command import Question, ask\n"
        f"wait = Question(name='q', command=['sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 60'], deadline_s=60)\n"
        "threading.Thread(target=ask, args=(wait,), daemon=True).start()\n"
        f"import pathlib\nwhile not pathlib.Path('{tmp_path}/pid').exists(): time.sleep(0.02)\n"
    )
    assert run_python("-c", script).code == 0

    assert _is_gone(int((tmp_path / "pid").read_text()))
