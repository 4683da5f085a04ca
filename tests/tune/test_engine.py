"""Several trials at the same time: on slots of this machine, on Ray, and by tuners that share a PostgreSQL database."""

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
from rocsolid.measure.process_race import ProcessRaceResult, RaceOptions
from rocsolid.model.platform import Platform
from rocsolid.model.study import TrialRecord
from rocsolid.model.trial_result import Returned, TrialResult, WrongResult
from rocsolid.tune.effort import Effort, Progress
from rocsolid.tune.engine import Engine, LocalEngine, OnStatus, gpu_slots
from rocsolid.tune.final_race import FinalistStatus
from rocsolid.tune.isolate.trial import TrialSpec
from rocsolid.tune.postgres_store import PostgresStore
from rocsolid.tune.screening import Screening
from rocsolid.tune.search import make_search
from rocsolid.tune.space import Restrictions, build_space
from rocsolid.tune.sqlite_store import SqliteStore
from rocsolid.tune.store import Store
from rocsolid.tune.study import run_study
from rocsolid.tune.trials import StudyConfig

FUSION = "process.TRITON_DEFAULT_FP_FUSION"
VALUES = ("1", "2", "3", "4", "5")
FAKE_TRIAL = f"{Path(__file__).with_name('fake_trials.py')}:measure"


def make_config(folder: Path) -> StudyConfig:
    env = make_env(platform=Platform.CPU)
    space = build_space(resolve("safe", env), env, Restrictions(fixed={"form": "eager"}, vary={FUSION: VALUES}))
    return StudyConfig(workload=str(folder / "attempts"), space=space, folder=folder, target=FAKE_TRIAL)


def screen(config: StudyConfig, store: Store, engine: Engine, effort: Effort | None = None) -> str:
    next_variant = make_search("exhaustive", config.space)
    return Screening(config, next_variant, store, engine, effort or Effort()).run(Progress())


def attempts(folder: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in (folder / "attempts").read_text().splitlines())


class ScriptedEngine:
    """An engine with prepared results: a list for each variant, one result for each attempt."""

    parallel_trials = 1

    def __init__(self, results: dict[str, list[TrialResult | None]]) -> None:
        self.results, self.started, self.now = results, Counter[str](), [(0, "")]

    def start(self, number: int, spec: TrialSpec, folder: Path, on_phase: OnStatus) -> None:
        del folder, on_phase
        value = spec.variables.get("TRITON_DEFAULT_FP_FUSION", "")
        self.started[value] += 1
        self.now = [(number, value)]

    def finished(self, timeout_s: float) -> list[tuple[int, TrialResult | None]]:
        del timeout_s
        (number, value), self.now = self.now[0], []
        return [(number, self.results[value][self.started[value] - 1])]

    def final_race(
        self, config: StudyConfig, finalists: Sequence[TrialRecord], options: RaceOptions, on_status: OnStatus
    ) -> Any:
        del config, options, on_status
        samples = {t.name: tuple(t.timing.median_ms + r / 1e4 for r in range(8)) for t in finalists if t.timing}
        first = samples[finalists[0].name]
        race = ProcessRaceResult(samples_ms=samples, control_ms=first, baseline=finalists[0].name, fastest="")
        return race, {t.name: FinalistStatus() for t in finalists}

    def close(self) -> None:
        pass


def took(ms: float) -> Returned:
    machine = {"device": "CPU", "arch": "x86_64", "torch": "2.13.0", "python": "3.12"}
    value = {
        "samples_ms": [ms] * 8,
        "clock": "host",
        "setup_s": 1.0,
        "peak_bytes": 0,
        "checked": "",
        "relative_error": 0.0,
    }
    return Returned(value={**value, **machine})


def test_suspiciously_fast_variant_is_measured_again(tmp_path: Path) -> None:
    engine = ScriptedEngine(
        {
            "": [took(10.0)],
            "1": [took(2.0), took(9.0)],  # a measurement error
            "2": [took(3.0), took(3.1)],  # a real gain
            "3": [took(1.0), WrongResult(message="far off")],  # correct by chance
            "4": [took(2.0)],  # not much faster than the best so far
            "5": [None, took(2.9)],  # its worker was lost once
        }
    )
    with closing(SqliteStore(tmp_path / "tune.db", "k", "w")) as store:
        config = make_config(tmp_path)
        screening = Screening(config, make_search("exhaustive", config.space), store, engine, Effort())
        study = run_study(config, screening, engine, "exhaustive", Effort(), Progress())

    times = {t.name.rpartition("=")[2]: (t.timing.median_ms if t.timing else t.kind) for t in study.trials}
    assert times == {"baseline": 10.0, "1": 9.0, "2": 3.0, "3": "wrong result", "4": 2.0, "5": 2.9}
    assert dict(engine.started) == {"": 1, "1": 2, "2": 2, "3": 2, "4": 1, "5": 2}
    second = {t.name.rpartition("=")[2]: t.second_timing.median_ms for t in study.trials if t.second_timing}
    assert second == {"1": 2.0, "2": 3.1}
    assert study.winner.endswith("=4")


def test_variant_that_loses_two_workers_counts_as_crashed(tmp_path: Path) -> None:
    engine = ScriptedEngine({"": [took(5.0)], **{value: [None, None] for value in VALUES}})
    with closing(SqliteStore(tmp_path / "tune.db", "k", "w")) as store:
        screen(make_config(tmp_path), store, engine)
        kinds = Counter(trial.kind for trial in store.finished())

    assert kinds == {"measured": 1, "crashed": 5}


def test_slots_run_in_parallel_and_try_nothing_twice(tmp_path: Path) -> None:
    slots = [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    with closing(SqliteStore(tmp_path / "tune.db", "k", "w")) as store, closing(LocalEngine(slots)) as engine:
        stop_reason = screen(make_config(tmp_path), store, engine)
        done = store.finished()

    assert stop_reason == "all variants were tried"
    assert attempts(tmp_path) == Counter(dict.fromkeys(("0", *VALUES), 1))
    assert sorted(t.number for t in done) == [1, 2, 3, 4, 5, 6]
    used = {line.split()[2] for line in (tmp_path / "attempts").read_text().splitlines()}
    assert used == {"0", "1"}


def test_interrupt_ends_all_slots_and_releases_their_variants(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    config = make_config(tmp_path)
    with closing(SqliteStore(tmp_path / "tune.db", "k", "w")) as store:
        engine = LocalEngine([{}, {}])
        screening = Screening(config, make_search("exhaustive", config.space), store, engine, Effort())
        with pytest.raises(KeyboardInterrupt):
            screening.run(Progress(on_trial=interrupt))  # when the first has ended, and the second has not
        engine.close()
        assert store.running() == []
        assert not running(str(tmp_path))
        with closing(LocalEngine()) as one:
            screen(config, store, one, Effort(trials=3))
        assert len({trial.name for trial in store.finished()}) == 3


def attempts_so_far(folder: Path) -> int:
    return sum(attempts(folder).values()) if (folder / "attempts").exists() else 0


def test_slot_is_a_gpu_or_one_gpu_per_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6")
    assert gpu_slots(Platform.CPU, 0) == [{}]
    assert gpu_slots(Platform.CPU, 0, parallel_trials=3) == [{}, {}, {}]
    assert gpu_slots(Platform.ROCM, 2) == [{"HIP_VISIBLE_DEVICES": "0"}, {"HIP_VISIBLE_DEVICES": "1"}]
    assert gpu_slots(Platform.CUDA, 3, ranks=2) == [{"CUDA_VISIBLE_DEVICES": "3,5"}]
    assert gpu_slots(Platform.CUDA, 3, parallel_trials=2) == [
        {"CUDA_VISIBLE_DEVICES": "3"},
        {"CUDA_VISIBLE_DEVICES": "5"},
    ]
    with pytest.raises(UsageError, match="--ranks 4 needs 4 GPUs, but 3 are visible"):
        gpu_slots(Platform.CUDA, 3, ranks=4)


@pytest.fixture
def postgres() -> Iterator[str]:
    """A temporary server on the loopback interface."""
    pytest.importorskip("psycopg", reason="pip install 'rocsolid[postgres]'")
    initdb = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), "")
    if not initdb:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="rocsolid-pg-", dir="/tmp") as folder:  # a socket's path is short
        Path(folder).chmod(0o777)
        # PostgreSQL refuses to run as root.
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
    """One of several tuners; runs in its own process."""
    with (
        closing(PostgresStore(url, "k", "w", heartbeat_s=0.2, dead_after_s=1.5)) as store,
        closing(LocalEngine()) as engine,
    ):
        screen(make_config(Path(folder)), store, engine)


def test_tuners_share_a_server_and_retry_the_trial_of_a_killed_one(postgres: str, tmp_path: Path) -> None:
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
    with closing(PostgresStore(postgres, "k", "w")) as store:
        done = store.finished()
        assert store.running() == []
    assert sorted(t.name.rpartition("=")[2] for t in done) == [*VALUES, "baseline"]  # none lost, none tried twice
    assert len({t.number for t in done}) == 6
    assert sum(counted.values()) <= 7  # only the running trial of the killed tuner is tried again
    until(lambda: not running(str(tmp_path)))


def test_tuner_without_heartbeat_cannot_save_a_trial_it_lost(postgres: str) -> None:
    late = PostgresStore(postgres, "k", "w", heartbeat_s=60, dead_after_s=0.4)
    with closing(late), closing(PostgresStore(postgres, "k", "w", heartbeat_s=0.1, dead_after_s=0.4)) as other:
        assert late.claim("baseline") == 1
        assert other.claim("baseline") is None
        time.sleep(0.5)
        assert other.running() == []
        assert other.claim("baseline") == 1
        late.save(TrialRecord(number=1, name="baseline", choices={}, kind="measured", reason="late"))
        assert other.finished() == []
        late.release(1)
        assert other.running() == ["baseline"]
        other.save(TrialRecord(number=1, name="baseline", choices={}, kind="measured", reason="in time"))
        assert [trial.reason for trial in late.finished()] == ["in time"]
        other.clear()
        assert late.finished() == []


def test_unreachable_server_error_hides_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="pip install 'rocsolid[postgres]'")
    with pytest.raises(InputError, match=r"cannot store the study in postgresql://127\.0\.0\.1:1/x: ") as refused:
        PostgresStore("postgresql://me:secret@127.0.0.1:1/x", "k", "w")
    assert "secret" not in str(refused.value)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rocsolid\[postgres\]'"):
        PostgresStore("postgresql://127.0.0.1:1/x", "k", "w")


def test_ray_runs_trials_and_retries_after_a_killed_worker(tmp_path: Path) -> None:
    """In its own process, because Ray changes the process that starts it."""
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
    """Two workers, one of which is killed during a trial."""
    import ray

    from rocsolid.tune.ray_engine import RayEngine

    ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    config = replace(make_config(Path(folder)), folder=Path(folder))
    threading.Thread(target=_kill_a_worker, args=(Path(folder),), daemon=True).start()
    effort = Effort(rounds=8, finalists=2)
    with (
        closing(SqliteStore(config.folder / "tune.db", "k", "w")) as store,
        closing(RayEngine(parallel_trials=2)) as engine,
    ):
        screening = Screening(config, make_search("exhaustive", config.space), store, engine, effort)
        study = run_study(config, screening, engine, "exhaustive", effort, Progress())
    names = [trial.name.rpartition("=")[2] for trial in study.trials]
    assert sorted(names) == [*VALUES, "baseline"], names
    assert all(trial.measured for trial in study.trials), study.trials
    ray.shutdown()
    sys.stdout.write(f"{study.winner} {study.verdict.value}\n")


def _kill_a_worker(folder: Path) -> None:
    """Kill the Ray worker that runs the second trial."""
    until(lambda: attempts_so_far(folder) >= 2)
    pid = int((folder / "attempts").read_text().splitlines()[1].split()[1])
    for _ in range(2):  # from the trial to its supervisor to the worker
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes()
    os.kill(pid, signal.SIGKILL)
    (folder / "killed").touch()
