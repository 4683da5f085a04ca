"""Several trials at once: on slots of this machine, on Ray, by tuners that share a PostgreSQL; and what dies is tried again."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, SOURCE, clean_environ, make_env, running, until

from rocsolid.catalog.profiles import resolve
from rocsolid.errors import InputError, MissingExtraError, UsageError
from rocsolid.measure.process_race import Knockout, Rules
from rocsolid.model.platform import Platform
from rocsolid.model.study import TrialRecord
from rocsolid.model.trial_result import Answered, Ending, WrongResult
from rocsolid.tune.effort import Effort, Progress
from rocsolid.tune.engine import Engine, Local, Told, slots_of
from rocsolid.tune.final_race import Standing
from rocsolid.tune.isolate.trial import Errand
from rocsolid.tune.postgres_store import SharedStore
from rocsolid.tune.screening import Screening
from rocsolid.tune.search import search_of
from rocsolid.tune.space import Narrowing, space_of
from rocsolid.tune.sqlite_store import FileStore
from rocsolid.tune.store import Store
from rocsolid.tune.study import run_study
from rocsolid.tune.trials import Job

FUSION = "process.TRITON_DEFAULT_FP_FUSION"
VALUES = ("1", "2", "3", "4", "5")
QUICK = f"{Path(__file__).with_name('quick.py')}:measure"


def a_job(folder: Path) -> Job:
    env = make_env(platform=Platform.CPU)
    space = space_of(resolve("safe", env), env, Narrowing(fixed={"form": "eager"}, vary={FUSION: VALUES}))
    return Job(workload=str(folder / "attempts"), space=space, folder=folder, target=QUICK)


def screened(job: Job, store: Store, engine: Engine, effort: Effort | None = None) -> str:
    following = search_of("exhaustive", job.space)
    return Screening(job, following, store, engine, effort or Effort()).run(Progress())


def attempts(folder: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in (folder / "attempts").read_text().splitlines())


class Scripted:
    """An engine whose trials end as they are told to; a list of times for each variant, one for each attempt."""

    slots = 1

    def __init__(self, endings: dict[str, list[Ending | None]]) -> None:
        self.endings, self.started, self.now = endings, Counter[str](), [(0, "")]

    def start(self, number: int, errand: Errand, folder: Path, told: Told) -> None:
        del folder, told
        wish = errand.variables.get("TRITON_DEFAULT_FP_FUSION", "")
        self.started[wish] += 1
        self.now = [(number, wish)]

    def ended(self, patience_s: float) -> list[tuple[int, Ending | None]]:
        del patience_s
        (number, wish), self.now = self.now[0], []
        return [(number, self.endings[wish][self.started[wish] - 1])]

    def finals(self, job: Job, entrants: Sequence[TrialRecord], rules: Rules, told: Told) -> Any:
        del job, rules, told
        samples = {t.name: tuple(t.timing.median_ms + r / 1e4 for r in range(8)) for t in entrants if t.timing}
        first = samples[entrants[0].name]
        raced = Knockout(samples_ms=samples, control_ms=first, baseline=entrants[0].name, leader="")
        return raced, {t.name: Standing() for t in entrants}

    def close(self) -> None:
        pass


def took(ms: float) -> Answered:
    where = {"device": "CPU", "arch": "x86_64", "torch": "2.13.0", "python": "3.12"}
    value = {"samples_ms": [ms] * 8, "clock": "host", "setup_s": 1.0, "peak_bytes": 0, "checked": "", "error": 0.0}
    return Answered(value={**value, **where})


def test_what_looks_too_good_is_measured_again_in_a_fresh_process(tmp_path: Path) -> None:
    engine = Scripted(
        {
            "": [took(10.0)],
            "1": [took(2.0), took(9.0)],  # a slip of the measurement
            "2": [took(3.0), took(3.1)],  # a find
            "3": [took(1.0), WrongResult(says="far off")],  # right by chance
            "4": [took(2.0)],  # not much better than the best before it
            "5": [None, took(2.9)],  # its worker was lost, once
        }
    )
    with closing(FileStore(tmp_path / "tune.db", "k", "w")) as store:
        job = a_job(tmp_path)
        screening = Screening(job, search_of("exhaustive", job.space), store, engine, Effort())
        study = run_study(job, screening, engine, "exhaustive", Effort(), Progress())

    times = {t.name.rpartition("=")[2]: (t.timing.median_ms if t.timing else t.kind) for t in study.trials}
    assert times == {"start": 10.0, "1": 9.0, "2": 3.0, "3": "wrong result", "4": 2.0, "5": 2.9}
    assert dict(engine.started) == {"": 1, "1": 2, "2": 2, "3": 2, "4": 1, "5": 2}
    doubted = {t.name.rpartition("=")[2]: t.again.median_ms for t in study.trials if t.again}
    assert doubted == {"1": 2.0, "2": 3.1}
    assert study.winner.endswith("=4")


def test_a_variant_that_loses_its_worker_again_and_again_is_given_up(tmp_path: Path) -> None:
    engine = Scripted({"": [took(5.0)], **{value: [None, None] for value in VALUES}})
    with closing(FileStore(tmp_path / "tune.db", "k", "w")) as store:
        screened(a_job(tmp_path), store, engine)
        kinds = Counter(trial.kind for trial in store.done())

    assert kinds == {"measured": 1, "crashed": 5}


def test_slots_run_side_by_side_and_nothing_twice(tmp_path: Path) -> None:
    slots = [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    with closing(FileStore(tmp_path / "tune.db", "k", "w")) as store, closing(Local(slots)) as engine:
        ended = screened(a_job(tmp_path), store, engine)
        done = store.done()

    assert ended == "nothing was left to try"
    assert attempts(tmp_path) == Counter(dict.fromkeys(("0", *VALUES), 1))
    assert sorted(t.number for t in done) == [1, 2, 3, 4, 5, 6]
    used = {line.split()[2] for line in (tmp_path / "attempts").read_text().splitlines()}
    assert used == {"0", "1"}


def test_an_interrupt_ends_all_slots_and_frees_their_variants(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    job = a_job(tmp_path)
    with closing(FileStore(tmp_path / "tune.db", "k", "w")) as store:
        engine = Local([{}, {}])
        screening = Screening(job, search_of("exhaustive", job.space), store, engine, Effort())
        with pytest.raises(KeyboardInterrupt):
            screening.run(Progress(trial=interrupt))  # when the first has ended, and the second has not
        engine.close()
        assert store.running() == []
        assert not running(str(tmp_path))
        with closing(Local()) as one:
            screened(job, store, one, Effort(trials=3))
        assert len({trial.name for trial in store.done()}) == 3


def attempts_so_far(folder: Path) -> int:
    return sum(attempts(folder).values()) if (folder / "attempts").exists() else 0


def test_a_slot_is_a_visible_gpu_or_as_many_as_there_are_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6")
    assert slots_of(Platform.CPU, 0) == [{}]
    assert slots_of(Platform.CPU, 0, wanted=3) == [{}, {}, {}]
    assert slots_of(Platform.ROCM, 2) == [{"HIP_VISIBLE_DEVICES": "0"}, {"HIP_VISIBLE_DEVICES": "1"}]
    assert slots_of(Platform.CUDA, 3, ranks=2) == [{"CUDA_VISIBLE_DEVICES": "3,5"}]
    assert slots_of(Platform.CUDA, 3, wanted=2) == [{"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "5"}]
    with pytest.raises(UsageError, match="the workload has 4 ranks, and 3 GPUs are visible"):
        slots_of(Platform.CUDA, 3, ranks=4)


@pytest.fixture
def postgres() -> Iterator[str]:
    """A server of our own on loopback, thrown away afterwards."""
    pytest.importorskip("psycopg", reason="pip install 'rocsolid[postgres]'")
    initdb = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), "")
    if not initdb:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="rocsolid-pg-", dir="/tmp") as folder:  # a socket's path is short
        Path(folder).chmod(0o777)
        # It refuses to run as root.
        unprivileged = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
        data, port = f"{folder}/data", _free_port()
        made = [*unprivileged, initdb, "-D", data, "-A", "trust", "-U", "tuner", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, cwd="/")
        serve = [str(Path(initdb).resolve().with_name("postgres")), "-D", data, "-p", str(port), "-k", folder, "-F"]
        with Path(folder, "log").open("w") as log:
            server = subprocess.Popen(
                [*unprivileged, *serve, "-c", "listen_addresses=127.0.0.1"], stdout=log, stderr=log, cwd="/"
            )
        try:
            until(lambda: "ready to accept" in Path(folder, "log").read_text())
            yield f"postgresql://tuner@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=30)


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def share_a_study(url: str, folder: str) -> None:
    """One tuner of several; runs in a process of its own."""
    with closing(SharedStore(url, "k", "w", beat_s=0.2, dead_s=1.5)) as store, closing(Local()) as engine:
        screened(a_job(Path(folder)), store, engine)


def test_tuners_share_a_server_and_what_a_killed_one_was_at_is_tried_again(postgres: str, tmp_path: Path) -> None:
    code = f"from tests.tune.test_engine import share_a_study; share_a_study({postgres!r}, {str(tmp_path)!r})"
    env = clean_environ(PYTHONPATH=f"{SOURCE}{os.pathsep}{ROOT}")
    folders = [tmp_path / "a", tmp_path / "b"]
    tuners = []
    for folder in folders:
        folder.mkdir()
        tuners.append(subprocess.Popen([sys.executable, "-c", code.replace(str(tmp_path), str(folder))], env=env))
    until(lambda: attempts_so_far(folders[0]) >= 1 and attempts_so_far(folders[1]) >= 1)
    tuners[0].kill()
    tuners[0].wait()
    assert tuners[1].wait(timeout=60) == 0

    counted = attempts(folders[0]) + attempts(folders[1])
    with closing(SharedStore(postgres, "k", "w")) as store:
        done = store.done()
        assert store.running() == []
    assert sorted(t.name.rpartition("=")[2] for t in done) == [*VALUES, "start"]  # nothing lost, nothing twice
    assert len({t.number for t in done}) == 6
    assert sum(counted.values()) <= 7  # only what the killed one was at was tried again
    until(lambda: not running(str(tmp_path)))


def test_a_tuner_that_was_taken_for_dead_cannot_keep_what_is_no_longer_its_own(postgres: str) -> None:
    late = SharedStore(postgres, "k", "w", beat_s=60, dead_s=0.4)
    with closing(late), closing(SharedStore(postgres, "k", "w", beat_s=0.1, dead_s=0.4)) as other:
        assert late.claim("start") == 1
        assert other.claim("start") is None
        time.sleep(0.5)
        assert other.running() == []
        assert other.claim("start") == 1
        late.keep(TrialRecord(number=1, name="start", choices={}, kind="measured", reason="late"))
        assert other.done() == []
        late.give_up(1)
        assert other.running() == ["start"]
        other.keep(TrialRecord(number=1, name="start", choices={}, kind="measured", reason="in time"))
        assert [trial.reason for trial in late.done()] == ["in time"]
        other.forget()
        assert late.done() == []


def test_a_server_that_is_not_there_is_one_line_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="pip install 'rocsolid[postgres]'")
    with pytest.raises(InputError, match=r"cannot keep the study in postgresql://me@127\.0\.0\.1:1/x: ") as refused:
        SharedStore("postgresql://me:secret@127.0.0.1:1/x", "k", "w")
    assert "secret" not in str(refused.value)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rocsolid\[postgres\]'"):
        SharedStore("postgresql://127.0.0.1:1/x", "k", "w")


def test_ray_runs_trials_and_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    """In a process of its own, because Ray changes the one that starts it."""
    pytest.importorskip("ray", reason="pip install 'rocsolid[ray]'")
    code = f"from tests.tune.test_engine import tune_on_ray; tune_on_ray({str(tmp_path)!r})"
    env = clean_environ(PYTHONPATH=f"{SOURCE}{os.pathsep}{ROOT}")
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
    )

    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines()[-1] == f"{FUSION}=5 faster"
    counted = attempts(tmp_path)
    assert set(counted) == {"0", *VALUES}
    assert (tmp_path / "killed").exists()
    assert not running(f"{tmp_path}/trials")


def tune_on_ray(folder: str) -> None:
    """Two workers, one of which is killed in the middle of a trial."""
    import ray

    from rocsolid.tune.ray_engine import OnRay

    ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    job = replace(a_job(Path(folder)), folder=Path(folder))
    threading.Thread(target=_kill_a_worker, args=(Path(folder),), daemon=True).start()
    effort = Effort(rounds=8, finalists=2)
    with closing(FileStore(job.folder / "tune.db", "k", "w")) as store, closing(OnRay(wanted=2)) as engine:
        screening = Screening(job, search_of("exhaustive", job.space), store, engine, effort)
        study = run_study(job, screening, engine, "exhaustive", effort, Progress())
    names = [trial.name.rpartition("=")[2] for trial in study.trials]
    assert sorted(names) == [*VALUES, "start"], names
    assert all(trial.measured for trial in study.trials), study.trials
    ray.shutdown()
    sys.stdout.write(f"{study.winner} {study.verdict.value}\n")


def _kill_a_worker(folder: Path) -> None:
    """The worker above the nanny of the second trial."""
    until(lambda: attempts_so_far(folder) >= 2)
    pid = int((folder / "attempts").read_text().splitlines()[1].split()[1])
    for _ in range(2):  # the trial, its nanny, the worker
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes()
    os.kill(pid, signal.SIGKILL)
    (folder / "killed").touch()
