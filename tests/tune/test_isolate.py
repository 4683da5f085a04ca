"""Every way a trial can go wrong: the right name for it, its deadline and no more, and no process left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, running, until

from rocsolid.model.trial_result import (
    Answered,
    Cancelled,
    Crashed,
    DeviceLost,
    Ending,
    Memory,
    OutOfMemory,
    Refused,
    TimedOut,
    TooManyProcesses,
    WrongResult,
)
from rocsolid.process.process_tree import carriers, descendants
from rocsolid.tune.isolate.supervisor import START
from rocsolid.tune.isolate.trial import Errand, Limits, Trial

HOSTILE = str(Path(__file__).with_name("hostile.py"))
MB = 1 << 20


def errand(name: str, limits: dict[str, Any] | None = None, **params: Any) -> Errand:
    given = {"heartbeat_s": 30.0, **(limits or {})}
    return Errand(target=f"{HOSTILE}:{name}", params=params, limits=Limits(**given))


def ended(tmp_path: Path, name: str, limits: dict[str, Any] | None = None, **params: Any) -> Any:
    """How it ended; nothing of it may be left, neither by its mark nor among our own descendants."""
    before = set(descendants(os.getpid()))
    with Trial(errand(name, limits, **params), tmp_path / "trial") as trial:
        ending = trial.wait()
    assert carriers(trial.token) == []
    assert set(descendants(os.getpid())) <= before
    return ending


def test_a_good_one_answers(tmp_path: Path) -> None:
    ending = ended(tmp_path, "good", x=1)

    assert isinstance(ending, Answered)
    assert ending.value == {"y": 2}
    assert ending.clean
    assert list(ending.account.phases) == ["import", "compile", "measure"]


def test_what_it_raises_is_a_refusal_with_its_phase(tmp_path: Path) -> None:
    ending = ended(tmp_path, "raises")

    assert isinstance(ending, Refused)
    assert ending.reason == "phase compile: RuntimeError: no such lowering"
    assert "Traceback" in ending.account.log_tail


def test_sys_exit_of_a_library_is_a_refusal(tmp_path: Path) -> None:
    ending = ended(tmp_path, "leaves_by_sys_exit")

    assert isinstance(ending, Refused)
    assert ending.reason == "phase build: SystemExit: 1"


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_without_an_answer_is_a_crash(tmp_path: Path, code: int) -> None:
    ending = ended(tmp_path, "exits", code=code)

    assert isinstance(ending, Crashed)
    assert ending.reason == f"exit code {code} without an answer in phase import"


def test_an_endless_loop_costs_its_deadline_and_shows_where(tmp_path: Path) -> None:
    ending = ended(tmp_path, "hangs_in_python", {"phases": {"compile": 1.0}})

    assert isinstance(ending, TimedOut)
    assert ending.reason == "phase compile took longer than 1 s"
    assert not ending.silent
    assert "hangs_in_python" in ending.account.stacks
    assert 1.0 <= ending.account.phases["compile"] < 6.0


def test_a_deadline_holds_also_when_nobody_can_look_into_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As beside a driver that keeps the locks of a process's memory: whoever asks what it holds waits for ever."""
    blind = "import time; from rocsolid.tune.isolate import supervisor; supervisor.memory_bytes = lambda _: time.sleep(1000)"
    monkeypatch.setattr(
        sys.modules[Trial.__module__], "START", START.replace("from rocsolid", f"{blind}; from rocsolid")
    )
    ending = ended(tmp_path, "hangs_in_python", {"phases": {"compile": 0.5}})

    assert isinstance(ending, TimedOut)
    assert ending.account.peak_bytes == 0
    assert ending.account.seconds < 10


def test_a_held_interpreter_lock_is_told_from_a_slow_phase(tmp_path: Path) -> None:
    ending = ended(tmp_path, "hangs_with_the_lock_held", {"heartbeat_s": 3.0})

    assert isinstance(ending, TimedOut)
    assert ending.silent
    assert "no sign of life for 3 s in phase compile" in ending.reason
    assert "hangs_with_the_lock_held" in ending.account.stacks


def test_polite_signals_do_not_matter(tmp_path: Path) -> None:
    ending = ended(tmp_path, "ignores_polite_signals", {"phases": {"compile": 0.5}})

    assert isinstance(ending, TimedOut)
    assert ending.account.killed == 1


def test_a_stopped_process_is_silent(tmp_path: Path) -> None:
    ending = ended(tmp_path, "stops_itself", {"heartbeat_s": 2.0})

    assert isinstance(ending, TimedOut)
    assert ending.silent


def test_a_segfault_is_a_crash_with_its_signal(tmp_path: Path) -> None:
    ending = ended(tmp_path, "segfaults")

    assert isinstance(ending, Crashed)
    assert ending.reason == "SIGSEGV in phase capture"
    assert "segfaults" in ending.account.log_tail  # the interpreter's own last words


def test_a_fault_on_the_device_is_told_from_a_plain_abort(tmp_path: Path) -> None:
    ending = ended(tmp_path, "faults_on_the_device")

    assert isinstance(ending, DeviceLost)
    assert ending.reason.startswith("Memory access fault by GPU node-1")


@pytest.mark.parametrize("name", ["eats_memory", "eats_memory_in_a_grandchild"])
def test_the_memory_of_the_whole_tree_is_capped(tmp_path: Path, name: str) -> None:
    ending = ended(tmp_path, name, {"memory_bytes": 400 * MB})

    assert isinstance(ending, OutOfMemory)
    assert ending.memory is Memory.HOST
    assert 400 * MB < ending.account.peak_bytes < 1500 * MB
    assert "400 MB are allowed" in ending.reason


@pytest.mark.parametrize(
    ("phase", "text", "kind"),
    [
        ("measure", "HIP out of memory. Tried to allocate 20.00 GiB.", OutOfMemory),
        ("capture", "HIP error: operation not permitted when stream is capturing", Refused),
        ("measure", "CUDA error: an illegal memory access was encountered", DeviceLost),
    ],
)
def test_errors_of_a_device_have_names(tmp_path: Path, phase: str, text: str, kind: type[Ending]) -> None:
    ending = ended(tmp_path, "says", phase=phase, text=text)

    assert type(ending) is kind
    assert ending.phase == phase
    assert text in ending.reason


def test_a_wrong_answer_is_one(tmp_path: Path) -> None:
    ending = ended(tmp_path, "answers_wrongly")

    assert isinstance(ending, WrongResult)
    assert ending.reason == "its answer is 13.6% of its size away from eager's"


def test_sessions_and_daemons_end_with_a_trial_that_hangs(tmp_path: Path) -> None:
    ending = ended(tmp_path, "breeds", {"phases": {"compile": 1.0}}, outlive=False)

    assert isinstance(ending, TimedOut)
    assert ending.account.killed == 5
    assert ending.account.processes == 5


def test_sessions_and_daemons_end_with_a_trial_that_succeeds(tmp_path: Path) -> None:
    ending = ended(tmp_path, "breeds", outlive=True)

    assert isinstance(ending, Answered)
    assert ending.value == "done"
    assert ending.account.killed == 4


def test_an_empty_environment_hides_nothing(tmp_path: Path) -> None:
    ending = ended(tmp_path, "hides")

    assert isinstance(ending, Answered)
    assert ending.account.killed == 1


def test_a_fork_bomb_is_defused(tmp_path: Path) -> None:
    ending = ended(tmp_path, "forks_without_end", {"processes": 40})

    assert isinstance(ending, TooManyProcesses)
    assert "and 40 are allowed" in ending.reason


def test_a_trial_can_end_its_own_workers_politely(tmp_path: Path) -> None:
    """What the nanny ignores must not be ignored below it: pools of workers are ended by SIGTERM and waited for."""
    ending = ended(tmp_path, "ends_its_worker")

    assert isinstance(ending, Answered), ending.reason
    assert ending.value == -signal.SIGTERM


def test_the_last_words_of_an_earlier_trial_are_not_those_of_this_one(tmp_path: Path) -> None:
    assert isinstance(ended(tmp_path, "faults_on_the_device"), DeviceLost)
    ending = ended(tmp_path, "exits", code=3)

    assert isinstance(ending, Crashed)
    assert ending.account.log_tail == ""


def test_a_flood_of_output_blocks_nobody_and_fills_no_disk(tmp_path: Path) -> None:
    ending = ended(tmp_path, "floods", {"log_bytes": 4 * MB}, megabytes=100)

    assert isinstance(ending, Answered)
    assert ending.account.log_tail.endswith("the last line\n")
    kept = Path(ending.account.log).read_bytes()
    assert len(kept) <= 4 * MB
    assert kept.startswith(f"[{ending.account.dropped_bytes} bytes dropped]\nxxx".encode())


def test_a_long_answer_arrives_whole(tmp_path: Path) -> None:
    ending = ended(tmp_path, "answers_at_length", count=300_000)

    assert isinstance(ending, Answered)
    assert ending.value == list(range(300_000))


def test_a_crash_after_the_answer_keeps_the_answer(tmp_path: Path) -> None:
    ending = ended(tmp_path, "crashes_after_the_answer")

    assert isinstance(ending, Answered)
    assert ending.value == 1
    assert ending.reason == "answered, then ended with SIGSEGV"


@pytest.mark.torch
def test_the_compilers_own_workers_end_too(tmp_path: Path) -> None:
    ending = ended(tmp_path, "compiles_then_hangs", {"phases": {"capture": 1.0, "compile": 200.0}})

    assert isinstance(ending, TimedOut)
    assert ending.phase == "capture"
    assert ending.account.killed >= 3


def test_a_trial_that_serves_answers_and_closes(tmp_path: Path) -> None:
    with Trial(errand("serves"), tmp_path / "trial") as trial:
        assert trial.ready()
        assert trial.ask(n=3) == {"twice": 6}
        assert trial.ask(n=4) == {"twice": 8}
        ending = trial.close()

    assert isinstance(ending, Answered)
    assert ending.value == "closed"


def test_a_request_has_the_deadline_of_a_measurement(tmp_path: Path) -> None:
    with Trial(errand("serves", {"phases": {"measure": 0.7}}), tmp_path / "trial") as trial:
        assert trial.ready()
        assert trial.ask(n=3, hang=True) is None
        assert isinstance(trial.ending, TimedOut)
        assert trial.ask(n=3) is None


def test_leaving_the_block_calls_it_off(tmp_path: Path) -> None:
    with Trial(errand("breeds", outlive=False), tmp_path / "trial") as trial:
        time.sleep(0.5)

    assert isinstance(trial.ending, Cancelled)
    assert carriers(trial.token) == []


def bereaved(tmp_path: Path) -> tuple[subprocess.Popen[str], str]:
    """A tuner with a trial that has bred, and the trial's mark."""
    code = (
        "import sys, pathlib\n"
        "from rocsolid.tune.isolate.trial import Errand, Trial\n"
        f"trial = Trial(Errand(target={HOSTILE + ':breeds'!r}, params={{'outlive': False}}), pathlib.Path({str(tmp_path)!r}))\n"
        "print(trial.token, flush=True)\n"
        "print(trial.wait(), flush=True)\n"
    )
    tuner = subprocess.Popen([sys.executable, "-c", code], env=clean_environ(), stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    token = tuner.stdout.readline().strip()
    until(lambda: len(carriers(token)) >= 4)
    return tuner, token


def test_nothing_is_left_when_the_tuner_is_killed(tmp_path: Path) -> None:
    tuner, token = bereaved(tmp_path)
    tuner.kill()
    tuner.communicate()

    until(lambda: carriers(token) == [])


@pytest.mark.parametrize("alive_s", [0.0, 0.003, 0.03, 0.1])
def test_nothing_is_left_when_the_program_ends_while_it_starts_a_trial(tmp_path: Path, alive_s: float) -> None:
    """By a thread that nobody waits for: whatever was born by then sees its tuner's end of the pipe close."""
    code = (
        "import pathlib, threading, time\n"
        "from rocsolid.tune.isolate.trial import Errand, Trial\n"
        f"errand = Errand(target={HOSTILE + ':breeds'!r}, params={{'outlive': False}})\n"
        f"start = lambda: Trial(errand, pathlib.Path({str(tmp_path)!r})).wait()\n"
        f"threading.Thread(target=start, daemon=True).start(); time.sleep({alive_s})\n"
    )
    subprocess.run([sys.executable, "-c", code], env=clean_environ(), check=True)

    until(lambda: not running(str(tmp_path)))


def test_nothing_is_left_when_the_nanny_is_killed(tmp_path: Path) -> None:
    tuner, token = bereaved(tmp_path)
    (nanny,) = [pid for pid, process in descendants(tuner.pid).items() if process.parent == tuner.pid]
    os.kill(nanny, signal.SIGKILL)
    told, _ = tuner.communicate(timeout=30)

    assert "the process that looked after the trial was killed" in told
    assert carriers(token) == []


def test_what_a_trial_costs_beyond_its_interpreter(tmp_path: Path) -> None:
    """The bar is 0.3 s; the best of some, since others share the machine."""
    bare = min(_timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(5))
    for attempt in range(20):
        if _timed(lambda n=attempt: ended(tmp_path / str(n), "good", x=1)) - bare < 0.3:
            return
    pytest.fail("no trial of twenty cost less than 0.3 s beyond its interpreter")


def _timed(act: Any) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun
