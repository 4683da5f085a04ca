"""Commands that hang, crash or leave children behind."""

import gc
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support import run_python

from rocsolid.model.environment import CheckStatus
from rocsolid.process import run_command
from rocsolid.process.run_command import Command, run_all_with_deadline, run_with_deadline


def python(code: str, deadline_s: float = 10) -> Command:
    return Command(name="child", command=(sys.executable, "-c", code), deadline_s=deadline_s)


def test_success_comes_with_its_output() -> None:
    result = run_with_deadline(python("print('hello')"))

    assert (result.check.status, result.stdout) == (CheckStatus.OK, "hello\n")


def test_failure_is_described_by_its_last_line() -> None:
    result = run_with_deadline(python("raise SystemExit('no driver')"))

    assert (result.check.status, result.check.detail) == (CheckStatus.FAILED, "no driver")


def test_crash_is_described_by_its_signal() -> None:
    result = run_with_deadline(python("import os; os.abort()"))

    assert (result.check.status, result.check.detail) == (CheckStatus.CRASHED, "SIGABRT")


def test_unknown_program_is_missing() -> None:
    assert run_with_deadline(Command(name="x", command=("no-such-program",))).check.status is CheckStatus.MISSING


def test_hang_ends_at_the_deadline() -> None:
    started = time.monotonic()
    result = run_with_deadline(
        python("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", 0.5)
    )

    assert result.check.status is CheckStatus.HUNG
    assert result.check.detail == "no result within 0.5 s"
    assert time.monotonic() - started < 30


def test_a_child_that_ends_long_after_it_was_killed_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No zombie process is left, and Python does not warn that the child is still running (a warning fails a test here)."""
    killpg, killed = os.killpg, []

    def kill_later(pid: int, sent: int) -> None:
        killed.append(pid)
        threading.Timer(0.5, killpg, (pid, sent)).start()

    monkeypatch.setattr(run_command, "_GRACE_S", 0.01)
    monkeypatch.setattr(os, "killpg", kill_later)
    before = set(threading.enumerate())
    assert run_with_deadline(python("import time; time.sleep(60)", 0.2)).check.status is CheckStatus.HUNG
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    with pytest.raises(ChildProcessError):
        os.waitpid(killed[0], os.WNOHANG)


def test_grandchild_with_open_output_does_not_block(tmp_path: Path) -> None:
    """The program itself ends; its grandchild in the same session is killed."""
    note = tmp_path / "pid"
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(note)!r}, "w").write(str(child.pid))
print("done")
"""
    started = time.monotonic()
    result = run_with_deadline(python(code))

    assert (result.check.status, result.stdout) == (CheckStatus.OK, "done\n")
    assert time.monotonic() - started < 30
    assert _has_ended(int(note.read_text()))


def _has_ended(pid: int) -> bool:
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


def test_several_commands_run_in_parallel() -> None:
    started = time.monotonic()
    results = run_all_with_deadline([python(f"import time; time.sleep(4); print({n})") for n in (1, 2)])

    assert [r.stdout for r in results] == ["1\n", "2\n"]
    assert time.monotonic() - started < 7.5
    assert run_all_with_deadline([]) == []


@pytest.mark.parametrize("flood", [10_000_000])
def test_long_output_is_cut(flood: int) -> None:
    result = run_with_deadline(python(f"print('x' * {flood})"))

    assert len(result.stdout) == 4_000_000


def test_exiting_program_leaves_no_child_behind(tmp_path: Path) -> None:
    script = (
        "import threading, time\n"
        "from rocsolid.process.run_command import Command, run_with_deadline\n"
        f"wait = Command(name='q', command=['sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 60'], deadline_s=60)\n"
        "threading.Thread(target=run_with_deadline, args=(wait,), daemon=True).start()\n"
        f"import pathlib\nwhile not pathlib.Path('{tmp_path}/pid').exists(): time.sleep(0.02)\n"
    )
    assert run_python("-c", script).code == 0

    assert _has_ended(int((tmp_path / "pid").read_text()))
