"""A test that hangs or ends its process costs only itself; the others run."""

from pathlib import Path

from rocsolid.prove.gpu_cases import run_gpu_cases

TESTS = """
import os, time, pytest
pytestmark = pytest.mark.torch

@pytest.fixture
def broken():
    raise OSError("no fixture")

def test_first(): pass
def test_crash(): os.kill(os.getpid(), 11)
def test_between(): pass
def test_hang(): time.sleep(60)
def test_exit(): os._exit(3)
def test_wrong(): assert 1 == 2
def test_error(broken): pass
def test_skipped(): pytest.skip("not here")
def test_last(): pass
"""


def test_every_test_runs_although_some_hang_or_end_the_process(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "test_import.py").write_text("import no_such_module")
    done = run_gpu_cases(tmp_path, tmp_path, mark="torch", deadline_s=2.0)

    assert [name.partition("::")[2] for name in done.passed] == ["test_first", "test_between", "test_last"]
    assert done.failed == ("test_it.py::test_wrong",)
    assert done.errors == ("test_import.py", "test_it.py::test_error")
    assert done.skipped == ("test_it.py::test_skipped",)
    assert done.died == (
        "test_it.py::test_crash ended the process with SIGSEGV",
        "test_it.py::test_hang hung for 2 s",
        "test_it.py::test_exit ended the process with exit code 3",
    )
    assert "in test_hang" in done.output
    assert str(done).startswith("3 passed, 1 failed, 2 errors, 1 skipped, 3 died; test_it.py::test_crash ended")


def test_a_folder_without_such_tests_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass")

    assert "no test ran" in str(run_gpu_cases(tmp_path, tmp_path))
