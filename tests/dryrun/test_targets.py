"""Several chips: one that fails does not affect the others; and workers that compile in parallel."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support import clean_environ, in_ci, running, until

from rocsolid.api import dryrun
from rocsolid.catalog.chips import chip
from rocsolid.dryrun.compile_kernels import CompileContext, saved_stem
from rocsolid.dryrun.compile_workers import Task, compile_all
from rocsolid.dryrun.request import Request
from rocsolid.errors import CannotRunError, InputError, RocsolidError, TimedOutError
from rocsolid.model.dryrun import DryRun, DryRunRecord, KernelConfig

SOURCES = str(Path(__file__).parents[2] / "src")
SLOW = """
import time
from pathlib import Path
from rocsolid.catalog.chips import chip
from rocsolid.dryrun.compile_kernels import CompileContext
from rocsolid.dryrun.compile_workers import Task, compile_all
from rocsolid.model.dryrun import KernelConfig
folder = Path(__file__).parent
def slow(number):
    (folder / f"started-{number}").touch()
    time.sleep(1000)
tasks = [Task(name=f"{n}", config=KernelConfig(), compile_it=lambda n=n: slow(n)) for n in range(2)]
compile_all(CompileContext(chip=chip("gfx942"), journal=folder / "journal"), tasks, 2)
"""


@pytest.fixture
def workload(tmp_path: Path) -> str:
    (tmp_path / "w.py").write_text("")
    return f"{tmp_path / 'w.py'}:build"


def failing(monkeypatch: pytest.MonkeyPatch, **errors: RocsolidError) -> None:
    """Replace `run_request`: the named chips fail, the others return an empty run."""

    def run_request(request: Request, _: object) -> DryRun:
        if request.target in errors:
            raise errors[request.target]
        return DryRun(target=request.target, product="")

    monkeypatch.setattr(dryrun, "run_request", run_request)
    monkeypatch.setattr(dryrun, "version_note", lambda **_: "")


def slow() -> None:
    time.sleep(60)


def test_a_kernel_that_takes_too_long_fails_alone(tmp_path: Path) -> None:
    shared = CompileContext(chip=chip("gfx942"), journal=tmp_path / "journal", kernel_deadline_s=0.3)
    tasks = [Task(name="slow", config=KernelConfig(), compile_it=slow)]
    tasks += [Task(name=f"{n}", config=KernelConfig(), compile_it=lambda: 1 / 0) for n in range(2)]
    errors = [result.config.error for result in compile_all(shared, tasks, 1)]

    assert errors == ["took longer than 0.3 s to compile", *["ZeroDivisionError: division by zero"] * 2]


def test_after_the_deadline_nothing_is_started(tmp_path: Path) -> None:
    shared = CompileContext(chip=chip("gfx942"), journal=tmp_path / "journal", ends=time.monotonic() - 1)
    (result,) = compile_all(shared, [Task(name="slow", config=KernelConfig(), compile_it=slow)])

    assert result.config.error == "not compiled, because the time limit was reached before"


def failing_pass() -> None:
    os.write(2, b"kernel.py:3:1: error: operand must be a tensor\n")
    raise RuntimeError("PassManager::run failed")  # noqa: EM101, TRY003 - as Triton raises it


def test_the_reason_that_the_compiler_prints_is_reported(tmp_path: Path) -> None:
    shared = CompileContext(chip=chip("gfx942"), journal=tmp_path / "journal")
    (result,) = compile_all(shared, [Task(name="k", config=KernelConfig(), compile_it=failing_pass)])

    assert result.config.error.endswith("PassManager::run failed: kernel.py:3:1: error: operand must be a tensor")


def dry(workload: str, *targets: str) -> DryRunRecord:
    return dryrun.dryrun(workload, targets, compare="cuda", cache=Path(workload).parent / "cache")


def test_a_chip_that_fails_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch, workload: str) -> None:
    failing(monkeypatch, gfx942=TimedOutError("too slow"), sm_90=CannotRunError("no ptxas"))
    record = dry(workload, "gfx942", "gfx950")

    assert [run.target for run in record.runs] == ["gfx950"]
    assert record.compared is None
    assert [(f.target, f.error, f.exit_code) for f in record.failed] == [
        ("gfx942", "too slow", 124),
        ("sm_90", "no ptxas", 3),
    ]


def test_if_all_chips_fail_the_first_error_is_raised(monkeypatch: pytest.MonkeyPatch, workload: str) -> None:
    failing(monkeypatch, gfx942=CannotRunError("first"), gfx950=CannotRunError("second"))

    with pytest.raises(CannotRunError, match="first"):
        dry(workload, "gfx942", "gfx950")


def test_a_wrong_workload_is_tried_only_once(monkeypatch: pytest.MonkeyPatch, workload: str) -> None:
    failing(monkeypatch, gfx950=InputError("no such function"))

    with pytest.raises(InputError, match="no such function"):
        dry(workload, "gfx942", "gfx950")


def test_the_command_reports_the_runs_and_exits_with_the_failure(
    monkeypatch: pytest.MonkeyPatch, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from rocsolid.cli.app import run

    failing(monkeypatch, gfx942=TimedOutError("too slow"))
    given = ["dryrun", workload, "--target", "gfx942", "--target", "gfx950", "--cache", str(Path(workload).parent)]

    assert run(given) == 124
    printed = capsys.readouterr()
    assert "gfx950" in printed.out
    assert "gfx942 failed: too slow" in printed.out
    assert printed.err == "rocsolid: error: too slow\n"


def test_long_kernel_names_get_distinct_file_names() -> None:
    long = [saved_stem(f"graph 0 {'triton_poi_fused_add' * 20} XBLOCK={size} warps=4") for size in (128, 256)]

    assert saved_stem("graph 0 k XBLOCK=2 warps=8") == "graph.0.k.XBLOCK=2.warps=8"
    assert len(set(long)) == 2
    assert all(
        len(stem) == 180 and stem.endswith(f"XBLOCK={size}.warps=4")
        for stem, size in zip(long, (128, 256), strict=True)
    )


def task(name: str, act: object) -> Task:
    return Task(name=name, config=KernelConfig(warps=4), compile_it=act)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_compiler_crash_affects_one_task(tmp_path: Path, workers: int) -> None:
    def fails() -> None:
        msg = "error: not here"
        raise RuntimeError(msg)

    def ends() -> None:
        os.write(2, b"LLVM ERROR: cannot select\n")
        os.kill(os.getpid(), signal.SIGKILL)

    tasks = [task("a", fails), task("b", ends), task("c", fails), task("d", lambda: os._exit(7)), task("e", fails)]
    done = compile_all(CompileContext(chip=chip("gfx942"), journal=tmp_path / "journal"), tasks, workers)

    assert [d.config.error for d in done] == [
        "RuntimeError: error: not here",
        "the compiler crashed: SIGKILL; LLVM ERROR: cannot select",
        "RuntimeError: error: not here",
        "the compiler crashed: exit code 7",
        "RuntimeError: error: not here",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["journal"]


def test_an_error_of_the_assembler_is_no_crash(tmp_path: Path) -> None:
    def ends() -> None:
        os.write(2, b"<inline asm>:1:2: error: invalid instruction\n")
        os._exit(1)

    (done,) = compile_all(CompileContext(chip=chip("gfx942"), journal=tmp_path / "journal"), [task("k", ends)])

    assert done.config.error == "the compiler stopped: <inline asm>:1:2: error: invalid instruction"


def test_progress_names_the_chip_or_what_is_done(tmp_path: Path) -> None:
    for doing, expected in (("", "at gfx942: 1 of 1, k"), ("reading", "at reading: 1 of 1, k")):
        shared = CompileContext(chip=chip("gfx942"), journal=tmp_path / f"journal{doing}", doing=doing)
        compile_all(shared, [task("k", lambda: None)])
        assert expected in shared.journal.read_text().splitlines()


@pytest.mark.skipif(find_spec("triton") is None and not in_ci(), reason="Triton is not installed")
def test_the_hash_of_triton_is_computed_once_and_not_in_every_worker(tmp_path: Path) -> None:
    from triton.runtime.cache import triton_key

    triton_key.cache_clear()
    compile_all(CompileContext(chip=chip("gfx942"), journal=tmp_path / "journal"), [task("k", triton_key)])

    assert triton_key.cache_info().currsize == 1


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "slow.py")], env=clean_environ(PYTHONPATH=SOURCES))
    until(lambda: len(list(tmp_path.glob("started-*"))) == 2)
    assert len(running(str(tmp_path))) == 3
    parent.kill()
    parent.wait()

    until(lambda: not running(str(tmp_path)))


def test_two_workers_share_the_tasks(tmp_path: Path) -> None:
    def slow() -> None:
        time.sleep(0.5)
        msg = f"error: {os.getpid()}"
        raise RuntimeError(msg)

    shared = CompileContext(chip=chip("gfx942"), journal=tmp_path / "journal")
    done = compile_all(shared, [task("a", slow), task("b", slow)], 2)

    assert len({d.config.error for d in done}) == 2
    assert compile_all(shared, []) == []
