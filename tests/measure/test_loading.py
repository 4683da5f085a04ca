"""Workloads: a name, a file, a function, and what it returns."""

import sys
from pathlib import Path

import pytest

from rocsolid.errors import InputError, RocsolidError, UnknownNameError, UsageError
from rocsolid.measure.load_workload import load_workload
from rocsolid.model.workload import WorkloadName


def write(folder: Path, text: str) -> Path:
    file = folder / "work.py"
    file.write_text(text)
    return file


def test_a_workload_is_loaded_and_can_be_called(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("START = 40\n")
    file = write(
        tmp_path, "import neighbour\ndef build():\n    return (lambda a, b=0: a + b), [neighbour.START], {'b': 2}\n"
    )
    before = list(sys.path)
    workload = load_workload(f"{file}:build")

    assert workload() == 42
    assert (workload.args, workload.kwargs, workload.name) == ((40,), {"b": 2}, f"{file}:build")
    assert sys.path == before


def test_a_class_of_the_workload_can_be_pickled(tmp_path: Path) -> None:
    import pickle

    file = write(
        tmp_path, "class A:\n    def __call__(self):\n        return 1\ndef build():\n    return A(), (), {}\n"
    )

    assert pickle.loads(pickle.dumps(load_workload(f"{file}:build").callable))() == 1  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("work.py", "a workload is file.py:function, and 'work.py' is not; did you mean work.py:build?"),
        ("build", "a workload is file.py:function, and 'build' is not"),
        ("work.py:no name", "a workload is file.py:function, and 'work.py:no name' is not"),
    ],
)
def test_a_name_that_is_none(name: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        WorkloadName.parse(name)
    assert str(error.value) == says


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the workload's file .*nothing\.py does not exist"):
        load_workload(f"{tmp_path}/nothing.py:build")
    with pytest.raises(InputError, match="is a folder"):
        load_workload(f"{tmp_path}:build")


def test_a_missing_function_names_those_that_come_near(tmp_path: Path) -> None:
    file = write(tmp_path, "def build():\n    pass\n")
    with pytest.raises(UnknownNameError, match=r"unknown function in .* 'biuld'; did you mean 'build'"):
        load_workload(f"{file}:biuld")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return 3", "returned int; a workload returns (callable, args, kwargs)"),
        ("return print, ()", "returned a tuple of 2; a workload returns (callable, args, kwargs)"),
        ("return 3, (), {}", "returned int first, which cannot be called"),
        ("return print, 3, {}", "returned int as args, and they must be a tuple"),
        ("return print, (), 3", "returned int as kwargs, and they must be a dict with names"),
        ("return print, (), {1: 2}", "returned dict as kwargs, and they must be a dict with names"),
        ("raise ValueError('no weights')", "failed at line 2: ValueError: no weights"),
        ("raise ValueError('one\\ntwo')", "failed at line 2: ValueError: one"),
        ("import no_such_package", "failed at line 2: ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_what_the_function_returns_is_checked(tmp_path: Path, body: str, says: str) -> None:
    file = write(tmp_path, f"def build():\n    {body}\n")
    with pytest.raises(RocsolidError) as error:
        load_workload(f"{file}:build")

    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


def test_a_file_that_does_not_parse(tmp_path: Path) -> None:
    file = write(tmp_path, "x = 1\ndef build(:\n")
    with pytest.raises(InputError, match="failed at line 2: SyntaxError"):
        load_workload(f"{file}:build")
