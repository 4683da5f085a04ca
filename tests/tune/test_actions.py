"""What can be done with studies beside running them: evidence for the catalogue, a dashboard, commits side by side."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, make_env, run_cli, until
from tests.tune.test_report import a_study

from rocsolid.api import tune
from rocsolid.catalog.profiles import resolve
from rocsolid.errors import CannotRunError, InputError, MissingExtraError, UnknownNameError
from rocsolid.model.plan import Plan, Tuned
from rocsolid.model.study import Duel
from rocsolid.model.timing import Comparison, Verdict
from rocsolid.model.trial_result import Answered
from rocsolid.runtime.launch.tunableop import with_tunableop_results
from rocsolid.tune.git_commits import checked_out
from rocsolid.tune.isolate.trial import run
from rocsolid.tune.space import Narrowing, space_of, variables_of
from rocsolid.tune.sqlite_store import FileStore
from rocsolid.tune.store import kept_in
from rocsolid.tune.trials import Job
from rocsolid.tune.tunableop import results_of

ENABLED = "process.PYTORCH_TUNABLEOP_ENABLED"


def test_a_study_becomes_evidence_that_the_catalogue_can_cite(tmp_path: Path) -> None:
    saved, out = tmp_path / "study.json", tmp_path / "evidence" / "freezing-on-mi300x.json"
    saved.write_text(a_study().json())
    ran = run_cli("tune", "export", str(saved), "--catalog", "--out", str(out))

    assert ran.code == 0, ran.err
    record = json.loads(out.read_text())
    assert {"schema", "what", "date", "device", "torch", "command", "python"} <= record.keys()
    assert record["facts"]["inductor.freezing=True"] == {
        "speedup": 1.25,
        "low": 1.2,
        "high": 1.31,
        "verdict": "faster",
        "median_ms": 1.7,
        "rounds": 0,
        "processes": 0,
        "break_even_calls": 900,
    }
    assert record["facts"]["inductor.max_autotune=True"]["rejected"] == "timed out"
    assert (
        'measured("freezing-on-mi300x#inductor.freezing=True", "1.25 times as fast as the start [1.20, 1.31]' in ran.err
    )


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    saved = tmp_path / "study.json"
    saved.write_text(a_study().json())
    plan = run_cli("tune", "export", str(saved))
    assert plan.code == 0
    assert 'schema = "rocsolid/plan/1"' in plan.out

    nameless = run_cli("tune", "export", str(saved), "--catalog")
    assert (nameless.code, nameless.err.count("\n")) == (2, 1)
    assert "--out evidence/NAME.json" in nameless.err
    none = run_cli("tune", "export", "--study", str(tmp_path / "no" / "tune.db"))
    assert (none.code, none.err.count("\n")) == (2, 1)
    assert "cannot read" in none.err


def filled(file: Path) -> None:
    with closing(FileStore(file, "0123456789", "/models/gpt.py:build")) as store:
        for trial in a_study().trials:
            number = store.claim(trial.name)
            assert number is not None
            store.keep(replace(trial, number=number))


def test_the_dashboard_shows_what_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard", reason="pip install 'rocsolid[dashboard]'")
    file, port = tmp_path / "tune.db", 18000 + os.getpid() % 10000
    filled(file)
    command = [sys.executable, "-m", "rocsolid", "tune", "dashboard", "--study", str(file), "--port", str(port)]
    served = subprocess.Popen(command, env=clean_environ(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def asked(path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=5) as answer:
                return json.loads(answer.read())
        except OSError:
            assert served.poll() is None, served.communicate()[1]
            return None

    try:
        until(lambda: asked("studies"))
        (summary,) = asked("studies")["study_summaries"]
        trials = asked(f"studies/{summary['study_id']}?after=0")["trials"]
    finally:
        served.send_signal(signal.SIGINT)
        _, said = served.communicate(timeout=30)
    assert summary["study_name"] == "gpt.py:build (01234567)"
    assert [trial["state"] for trial in trials].count("Complete") == 12
    assert [trial["state"] for trial in trials].count("Fail") == 1
    assert served.returncode == 130
    assert f"http://127.0.0.1:{port}/" in said


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard", reason="pip install 'rocsolid[dashboard]'")
    filled(tmp_path / "tune.db")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ran = run_cli("tune", "dashboard", "--study", str(tmp_path / "tune.db"), "--port", port)
    assert ran.code == 3, ran.err
    assert "choose another with --port" in ran.err


def test_a_dashboard_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.tune.dashboard import serve

    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rocsolid\[dashboard\]'") as said:
        serve(str(tmp_path / "tune.db"), "127.0.0.1", 1)
    assert said.value.exit_code == 3


def test_only_files_of_ours_are_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        kept_in(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("words")
    with pytest.raises(InputError, match="holds no study"):
        kept_in(tmp_path / "text.db")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=me", "-c", "user.email=me@here", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits that differ in a module beside the workload, and a change that is not committed."""
    root = tmp_path / "theirs"
    (root / "src").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(root))
    (root / ".gitignore").write_text("__pycache__/\n")
    for number in (1, 2):
        (root / "src" / "speed.py").write_text(f"SPEED = {number}\n")
        (root / "bench.py").write_text(
            "def build(): ...\n\n\ndef tell(reporter, **_):\n    import speed\n    return speed.SPEED\n"
        )
        git(root, "add", "-A")
        git(root, "commit", "-qm", f"{number}")
    (root / "src" / "speed.py").write_text("SPEED = 3\n")
    return root


def trees(root: Path) -> int:
    return git(root, "worktree", "list", "--porcelain").count("worktree ")


def test_commits_are_tried_with_their_own_files_and_leave_nothing(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}

    def duel(sides: Any, *_: object) -> Duel:
        for name, job, choices in sides:
            there = job.workload.rpartition(":")[0]
            told = replace(job, target=f"{there}:tell").errand(choices)
            ending = run(told, job.folder)
            assert isinstance(ending, Answered), ending
            seen[name] = ending.value
        same = Comparison(speedup=1.0, low=1.0, high=1.0, verdict=Verdict.SAME, noise=0.0)
        timing = a_study().finalists[0].timing
        assert timing
        return Duel(
            workload=there,
            a="",
            b="",
            timing_a=timing,
            timing_b=timing,
            b_against_a=same,
            rounds=1,
            processes=1,
            where={},
        )

    monkeypatch.chdir(repository.parent)
    monkeypatch.setenv("PYTHONPATH", str(repository / "src"))
    monkeypatch.setattr(tune, "run_duel", duel)
    found = tune.ab(f"{repository}/bench.py:build", "git:HEAD~1", "git:HEAD,form=eager")
    assert seen == {"git:HEAD~1": 1, "git:HEAD,form=eager": 2}
    assert found.workload == f"{repository}/bench.py:build"  # not a folder that is gone
    tune.ab(f"{repository}/bench.py:build", "form=eager", "git:HEAD")
    assert seen["form=eager"] == 3
    assert trees(repository) == 1
    assert git(repository, "status", "--porcelain") == " M src/speed.py\n"


def test_a_work_tree_goes_whatever_happens(repository: Path) -> None:
    with suppress(ZeroDivisionError), checked_out(repository / "bench.py", "HEAD") as there:
        assert there.is_file()
        raise ZeroDivisionError
    assert not there.exists()
    with (
        pytest.raises(UnknownNameError, match="unknown commit 'nowhere'"),
        checked_out(repository / "bench.py", "nowhere"),
    ):
        pass
    with pytest.raises(CannotRunError, match="git rev-parse failed"), checked_out(Path("/proc/version"), "HEAD"):
        pass

    code = "import sys, time; from pathlib import Path; from rocsolid.tune.git_commits import checked_out\n"
    code += f"with checked_out(Path({str(repository / 'bench.py')!r}), 'HEAD') as there: print(there, flush=True); time.sleep(60)"
    for end, left in ((signal.SIGTERM, False), (signal.SIGKILL, True)):
        holds = subprocess.Popen([sys.executable, "-c", code], env=clean_environ(), stdout=subprocess.PIPE, text=True)
        with ExitStack() as stack:
            stack.callback(holds.wait)
            assert holds.stdout
            tree = Path(holds.stdout.readline().strip())
            holds.send_signal(end)
        holds.stdout.close()
        assert tree.exists() is left
    with checked_out(repository / "bench.py", "HEAD"):  # the next one clears up
        assert trees(repository) == 2
    assert not tree.exists()
    assert trees(repository) == 1


CSV = "Validator,PT_VERSION,2.13.0\nGemmTunableOp_float_NN,nn_64_64_64,Gemm_Rocblas_7,0.01\n"


def test_tunableops_results_travel_with_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env()
    space = space_of(resolve("fast", env), env, Narrowing(vary={ENABLED: ("1",)}))
    job = Job(workload="w.py:build", space=space, folder=tmp_path)
    with_it, without = job.errand({ENABLED: "1"}), job.errand({})
    assert "PYTORCH_TUNABLEOP_FILENAME" not in without.variables
    file = Path(with_it.variables["PYTORCH_TUNABLEOP_FILENAME"])
    assert results_of(tmp_path, space.plan({ENABLED: "1"})) == ""
    file.with_name("results0.csv").write_text(CSV)  # as TunableOp does
    assert results_of(tmp_path, space.plan({})) == ""
    found = results_of(tmp_path, space.plan({ENABLED: "1"}))
    assert found == CSV

    tuned = Tuned(
        workload="w.py:build", form="compiled", graph=False, speedup=1.1, low=1.0, high=1.2, verdict="faster", noise=0.0,
        checked="", device="MI300X", arch="gfx942", python="3.12", date="2026-11-15", tunableop=found,
    )  # fmt: skip
    replace(space.plan({ENABLED: "1"}), tuned=tuned).save(tmp_path / "plan.toml")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    used = with_tunableop_results(Plan.load(tmp_path / "plan.toml"), 2)
    variables, _ = variables_of(used)
    assert variables["PYTORCH_TUNABLEOP_TUNING"] == "0"
    written = Path(variables["PYTORCH_TUNABLEOP_FILENAME"]).parent
    assert {one.name: one.read_text() for one in written.iterdir()} == {"results0.csv": CSV, "results1.csv": CSV}
    assert with_tunableop_results(space.plan({}), 2) == space.plan({})
