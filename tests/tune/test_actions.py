"""Export of studies, the dashboard, A/B tests of commits, and TunableOp results."""

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
from rocsolid.model.study import ABResult
from rocsolid.model.timing import SpeedComparison, Verdict
from rocsolid.model.trial_result import Returned
from rocsolid.runtime.launch.tunableop import with_tunableop_results
from rocsolid.tune.git_commits import checked_out
from rocsolid.tune.isolate.trial import run
from rocsolid.tune.space import Restrictions, build_space, process_variables
from rocsolid.tune.sqlite_store import SqliteStore
from rocsolid.tune.store import read_studies
from rocsolid.tune.trials import StudyConfig
from rocsolid.tune.tunableop import read_results

ENABLED = "process.PYTORCH_TUNABLEOP_ENABLED"


def test_study_is_exported_as_evidence_with_citations(tmp_path: Path) -> None:
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
        "rounds": 24,
        "processes": 3,
        "break_even_calls": 900,
    }
    assert record["facts"]["inductor.max_autotune=True"]["rejected"] == "timed out"
    assert (
        'measured("freezing-on-mi300x#inductor.freezing=True", "1.25 times as fast as the baseline [1.20, 1.31]'
        in ran.err
    )


def test_export_prints_the_plan_or_a_clear_error(tmp_path: Path) -> None:
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


def fill(file: Path) -> None:
    with closing(SqliteStore(file, "0123456789", "/models/gpt.py:build")) as store:
        for trial in a_study().trials:
            number = store.claim(trial.name)
            assert number is not None
            store.save(replace(trial, number=number))


def test_dashboard_shows_the_stored_studies(tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard", reason="pip install 'rocsolid[dashboard]'")
    file, port = tmp_path / "tune.db", 18000 + os.getpid() % 10000
    fill(file)
    command = [sys.executable, "-m", "rocsolid", "tune", "dashboard", "--study", str(file), "--port", str(port)]
    served = subprocess.Popen(command, env=clean_environ(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def fetch(path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=5) as response:
                return json.loads(response.read())
        except OSError:
            assert served.poll() is None, served.communicate()[1]
            return None

    try:
        until(lambda: fetch("studies"))
        (summary,) = fetch("studies")["study_summaries"]
        trials = fetch(f"studies/{summary['study_id']}?after=0")["trials"]
    finally:
        served.send_signal(signal.SIGINT)
        _, printed = served.communicate(timeout=30)
    assert summary["study_name"] == "gpt.py:build (01234567)"
    assert [trial["state"] for trial in trials].count("Complete") == 12
    assert [trial["state"] for trial in trials].count("Fail") == 1
    assert served.returncode == 130
    assert f"http://127.0.0.1:{port}/" in printed


def test_used_port_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard", reason="pip install 'rocsolid[dashboard]'")
    fill(tmp_path / "tune.db")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ran = run_cli("tune", "dashboard", "--study", str(tmp_path / "tune.db"), "--port", port)
    assert ran.code == 3, ran.err
    assert "choose another port with --port" in ran.err


def test_missing_dashboard_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.tune.dashboard import serve

    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rocsolid\[dashboard\]'") as error:
        serve(str(tmp_path / "tune.db"), "127.0.0.1", 1)
    assert error.value.exit_code == 3


def test_only_rocsolid_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_studies(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("words")
    with pytest.raises(InputError, match="is not a rocsolid study"):
        read_studies(tmp_path / "text.db")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=me", "-c", "user.email=me@here", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits that differ in a module next to the workload, and an uncommitted change."""
    root = tmp_path / "theirs"
    (root / "src").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(root))
    (root / ".gitignore").write_text("__pycache__/\n")
    for number in (1, 2):
        (root / "src" / "speed.py").write_text(f"SPEED = {number}\n")
        (root / "bench.py").write_text(
            "def build(): ...\n\n\ndef report(reporter, **_):\n    import speed\n    return speed.SPEED\n"
        )
        git(root, "add", "-A")
        git(root, "commit", "-qm", f"{number}")
    (root / "src" / "speed.py").write_text("SPEED = 3\n")
    return root


def trees(root: Path) -> int:
    return git(root, "worktree", "list", "--porcelain").count("worktree ")


def test_commits_run_with_their_own_files_and_leave_no_work_tree(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}

    def run_both(sides: Any, *_: object) -> ABResult:
        for name, config, choices in sides:
            there = config.workload.rpartition(":")[0]
            spec = replace(config, target=f"{there}:report").trial_spec(choices)
            result = run(spec, config.folder)
            assert isinstance(result, Returned), result
            seen[name] = result.value
        same = SpeedComparison(speedup=1.0, low=1.0, high=1.0, verdict=Verdict.SAME, noise=0.0)
        timing = a_study().finalists[0].timing
        assert timing
        return ABResult(
            workload=there,
            a="",
            b="",
            timing_a=timing,
            timing_b=timing,
            b_against_a=same,
            rounds=1,
            processes=1,
            machine={},
        )

    monkeypatch.chdir(repository.parent)
    monkeypatch.setenv("PYTHONPATH", str(repository / "src"))
    monkeypatch.setattr(tune, "run_ab_test", run_both)
    found = tune.ab(f"{repository}/bench.py:build", "git:HEAD~1", "git:HEAD,form=eager")
    assert seen == {"git:HEAD~1": 1, "git:HEAD,form=eager": 2}
    assert found.workload == f"{repository}/bench.py:build"  # not the work tree, which is gone
    tune.ab(f"{repository}/bench.py:build", "form=eager", "git:HEAD")
    assert seen["form=eager"] == 3
    assert trees(repository) == 1
    assert git(repository, "status", "--porcelain") == " M src/speed.py\n"


def test_work_tree_is_always_removed(repository: Path) -> None:
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
    with checked_out(repository / "bench.py", "HEAD"):  # the next one cleans up
        assert trees(repository) == 2
    assert not tree.exists()
    assert trees(repository) == 1


CSV = "Validator,PT_VERSION,2.13.0\nGemmTunableOp_float_NN,nn_64_64_64,Gemm_Rocblas_7,0.01\n"


def test_tunableop_results_are_part_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env()
    space = build_space(resolve("fast", env), env, Restrictions(vary={ENABLED: ("1",)}))
    config = StudyConfig(workload="w.py:build", space=space, folder=tmp_path)
    with_tunableop, without = config.trial_spec({ENABLED: "1"}), config.trial_spec({})
    assert "PYTORCH_TUNABLEOP_FILENAME" not in without.variables
    file = Path(with_tunableop.variables["PYTORCH_TUNABLEOP_FILENAME"])
    assert read_results(tmp_path, space.plan({ENABLED: "1"})) == ""
    file.with_name("results0.csv").write_text(CSV)  # TunableOp adds the device number
    assert read_results(tmp_path, space.plan({})) == ""
    found = read_results(tmp_path, space.plan({ENABLED: "1"}))
    assert found == CSV

    tuned = Tuned(
        workload="w.py:build", form="compiled", graph=False, speedup=1.1, low=1.0, high=1.2, verdict="faster", noise=0.0,
        checked="", device="MI300X", arch="gfx942", python="3.12", date="2026-11-15", tunableop=found,
    )  # fmt: skip
    replace(space.plan({ENABLED: "1"}), tuned=tuned).save(tmp_path / "plan.toml")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    used = with_tunableop_results(Plan.load(tmp_path / "plan.toml"), 2)
    variables, _ = process_variables(used)
    assert variables["PYTORCH_TUNABLEOP_TUNING"] == "0"
    written = Path(variables["PYTORCH_TUNABLEOP_FILENAME"]).parent
    assert {one.name: one.read_text() for one in written.iterdir()} == {"results0.csv": CSV, "results1.csv": CSV}
    assert with_tunableop_results(space.plan({}), 2) == space.plan({})
