"""A check that hangs or dies costs only itself, and an interrupted run continues without repeating anything."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from tests.support import ROOT, clean_environ, run_cli, run_python

from rocsolid.errors import UnknownNameError
from rocsolid.model.proof import Claim, ClaimKind, ClaimVerdict
from rocsolid.prove.bundle import write_bundle
from rocsolid.prove.check import all_claims
from rocsolid.prove.run import Journal, PlannedCheck, plan_checks, run_checks

SAYS = 'import sys; print(\'rocsolid-verdict {{"claim": "error:{name}", "verdict": "confirmed", "detail": "fine"}}\', flush=True)'
HEADER = {"code": "1", "machine": "here"}


def planned(name: str, code: str = "", *, deadline_s: float = 20.0, rank: int = 1, gpu: bool = False) -> PlannedCheck:
    claims = tuple(
        Claim(id=f"error:{part}", kind=ClaimKind.ERROR, statement="x", check=name) for part in (name, f"{name}-2")
    )
    program = SAYS.format(name=name) + "\n" + code
    return PlannedCheck(
        name=name, claims=claims, command=(sys.executable, "-c", program), deadline_s=deadline_s, rank=rank, estimate_s=0.1, gpu=gpu
    )  # fmt: skip


def test_a_check_that_hangs_or_dies_costs_only_itself(tmp_path: Path) -> None:
    checks = [
        planned("hangs", "import time; time.sleep(60)", deadline_s=1.0),
        planned("dies", "import os; os.kill(os.getpid(), 11)"),
        planned("raises", "print('what it printed'); raise ValueError('no')"),
        planned("works", "print('noise')", gpu=True),
    ]
    journal = Journal(file=tmp_path / "j", header=HEADER)

    assert run_checks(checks, journal, seconds=60) == []
    assert {name: run.ended for name, run in journal.done.items()} == {
        "hangs": "hung",
        "dies": "crashed",
        "raises": "failed",
        "works": "ok",
    }
    for (
        run
    ) in journal.done.values():  # the verdict that came before the end counts, the missing one could not be decided
        assert [row.verdict for row in run.results] == [ClaimVerdict.CONFIRMED, ClaimVerdict.COULD_NOT_RUN]
    assert "SIGSEGV" in journal.done["dies"].results[1].detail
    assert "what it printed" in journal.done["raises"].output
    assert journal.done["works"].output == "noise"


def test_a_run_stops_in_time_and_lists_what_is_left(tmp_path: Path) -> None:
    checks = [planned("slow", "import time; time.sleep(60)", deadline_s=50.0), planned("next")]
    journal = Journal(file=tmp_path / "j", header=HEADER)
    started = time.monotonic()
    late = run_checks(checks, journal, seconds=3.0)

    assert time.monotonic() - started < 8
    assert late == ["slow", "next"]
    again = Journal(file=tmp_path / "j", header=HEADER)
    assert again.done == {}
    assert run_checks(checks[1:], again, seconds=20) == []


def test_a_check_that_ends_the_machine_is_not_tried_forever(tmp_path: Path) -> None:
    for boot in ("first", "second"):
        journal = Journal(file=tmp_path / "j", header=HEADER)
        journal._boot = boot
        journal.begin("reboots")
    for _ in range(6):
        journal.begin("kills the runner")
    journal = Journal(file=tmp_path / "j", header=HEADER)
    run_checks([planned("reboots"), planned("kills the runner")], journal, seconds=20)

    assert "restarted 2 times" in journal.done["reboots"].results[0].detail
    assert "started 6 times" in journal.done["kills the runner"].results[0].detail


def test_journal_of_other_code_or_another_machine_is_not_used(tmp_path: Path) -> None:
    journal = Journal(file=tmp_path / "j", header=HEADER)
    run_checks([planned("works")], journal, seconds=20)
    with (tmp_path / "j").open("a") as opened:
        opened.write('\n{"run": {"check": "cut o')

    assert set(Journal(file=tmp_path / "j", header=HEADER).done) == {"works"}
    assert Journal(file=tmp_path / "j", header={**HEADER, "code": "2"}).done == {}


PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = [{src!r}, {root!r}]
from tests.prove.test_run import HEADER, planned
from rocsolid.prove.run import Journal, run_checks
folder = Path(sys.argv[1])
note = "import time; from pathlib import Path; time.sleep(0.15); open({{!r}}, 'a').write('done\\\\n')"
checks = [planned(f"check-{{n}}", note.format(str(folder / f"check-{{n}}"))) for n in range(8)]
run_checks(checks, Journal(file=folder / "journal", header=HEADER), seconds=60)
"""


def test_kill_9_at_five_points_and_no_finished_check_is_repeated(tmp_path: Path) -> None:
    script = PROGRAM.format(src=str(ROOT / "src"), root=str(ROOT))
    (tmp_path / "run.py").write_text(script)
    points = random.Random(5)  # noqa: S311 - not for secrets
    kept: set[str] = set()
    for _ in range(5):
        child = subprocess.Popen([sys.executable, str(tmp_path / "run.py"), str(tmp_path)], env=clean_environ())
        time.sleep(points.uniform(0.3, 1.6))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        done = set(Journal(file=tmp_path / "journal", header=HEADER).done)
        assert kept <= done
        kept = done
        before = {name: (tmp_path / name).read_text().count("done") for name in kept}
    assert (
        subprocess.run(
            [sys.executable, str(tmp_path / "run.py"), str(tmp_path)], env=clean_environ(), check=False
        ).returncode
        == 0
    )

    journal = Journal(file=tmp_path / "journal", header=HEADER)
    assert len(journal.done) == 8
    assert all(run.ended == "ok" for run in journal.done.values())
    assert {name: (tmp_path / name).read_text().count("done") for name in before} == before


def test_checks_are_ordered_by_value_and_chosen_by_claim_or_check() -> None:
    every = plan_checks(all_claims())

    assert [check.rank for check in every] == sorted(check.rank for check in every)
    assert every[0].name == "problem:hip-graph-replay-corruption"
    assert [check.name for check in plan_checks(all_claims(), ["capture-rule:malloc"])] == ["capture-rules"]
    assert len(plan_checks(all_claims(), ["fact"])) > 20
    assert sum(len(check.claims) for check in every) == sum(bool(claim.check) for claim in all_claims())
    with pytest.raises(UnknownNameError, match="capture-rules"):
        plan_checks(all_claims(), ["capture-rule"])


def test_list_needs_no_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None; from rocsolid.cli import main; sys.exit(main(['prove', '--list']))"
    )
    listed = run_python("-c", script)

    assert listed.code == 0, listed.err
    assert f"{len(all_claims())} claims" in listed.out
    assert "capture-rule:malloc" in listed.out


def test_a_bundle_of_an_installed_package_leaves_out_what_pip_does_not_install(tmp_path: Path) -> None:
    bundle = tmp_path / "rocsolid-prove.pyz"
    made = run_cli("prove", "--bundle", str(bundle), env=clean_environ(ROCSOLID_KIT=str(tmp_path / "site-packages")))

    assert made.code == 0, made.err
    assert "left out: the checks that need rocsolid's tests" in made.err
    names = zipfile.ZipFile(bundle).namelist()
    assert "src/rocsolid/prove/capture_cases.py" in names
    assert not any(name.startswith("docs/") for name in names)
    assert [file.name for file in tmp_path.iterdir()] == [bundle.name]


def test_a_bundle_that_fails_leaves_no_file_that_looks_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "rocsolid-prove.pyz"
    monkeypatch.setattr("rocsolid.prove.bundle.kit_files", lambda: [tmp_path / "no such file"])
    monkeypatch.setattr("rocsolid.prove.bundle.KIT", tmp_path)
    with pytest.raises(FileNotFoundError):
        write_bundle(bundle)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.torch
def test_bundle_runs_without_a_checkout(tmp_path: Path) -> None:
    bundle = tmp_path / "rocsolid-prove.pyz"
    made = run_cli("prove", "--bundle", str(bundle))
    assert made.code == 0, made.err
    assert bundle.stat().st_size < 4_000_000
    names = zipfile.ZipFile(bundle).namelist()
    assert {"docs/data/guides.json", "scripts/facts/settings.py", "src/rocsolid/prove/capture_cases.py"} <= set(names)
    env = {name: value for name, value in clean_environ(TMPDIR=str(tmp_path)).items() if name != "PYTHONPATH"}
    out = tmp_path / "proof.json"
    ran = subprocess.run(
        [sys.executable, "-P", str(bundle), "--minutes", "2", "--only", "settings",
         "--output", "json", "--out", str(out)],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    record = json.loads(out.read_text())
    assert [run["check"] for run in record["checks"]] == ["settings"]
    verdicts = {row["claim"]: row["verdict"] for row in record["checks"][0]["results"]}
    assert verdicts["setting:inductor.max_autotune"] == "confirmed"
    assert any(name.startswith("guide:") for name in verdicts)  # the guides are in the bundle
