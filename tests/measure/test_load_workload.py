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


def test_workload_is_loaded_and_can_be_called(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("START = 40\n")
    file = write(
        tmp_path, "import neighbour\ndef build():\n    return (lambda a, b=0: a + b), [neighbour.START], {'b': 2}\n"
    )
    before = list(sys.path)
    workload = load_workload(f"{file}:build")

    assert workload() == 42
    assert (workload.args, workload.kwargs, workload.name) == ((40,), {"b": 2}, f"{file}:build")
    assert sys.path == before


def test_class_of_the_workload_can_be_pickled(tmp_path: Path) -> None:
    import pickle

    file = write(
        tmp_path, "class A:\n    def __call__(self):\n        return 1\ndef build():\n    return A(), (), {}\n"
    )

    assert pickle.loads(pickle.dumps(load_workload(f"{file}:build").callable))() == 1  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("work.py", "write a workload as file.py:function, not 'work.py'; did you mean work.py:build?"),
        ("build", "write a workload as file.py:function, not 'build'"),
        ("work.py:no name", "write a workload as file.py:function, not 'work.py:no name'"),
    ],
)
def test_invalid_workload_name(name: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        WorkloadName.parse(name)
    assert str(error.value) == message


def test_missing_file_and_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the workload file .*nothing\.py does not exist"):
        load_workload(f"{tmp_path}/nothing.py:build")
    with pytest.raises(InputError, match="is a folder"):
        load_workload(f"{tmp_path}:build")


def test_missing_function_suggests_near_matches(tmp_path: Path) -> None:
    file = write(tmp_path, "def build():\n    pass\n")
    with pytest.raises(UnknownNameError, match=r"unknown function 'biuld'; did you mean 'build'"):
        load_workload(f"{file}:biuld")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "returned int; a workload function must return (callable, args, kwargs)"),
        ("return print, ()", "returned a tuple of 2; a workload function must return (callable, args, kwargs)"),
        ("return 3, (), {}", "returned int as the callable, which cannot be called"),
        ("return print, 3, {}", "returned int as args, but args must be a tuple"),
        ("return print, (), 3", "returned int as kwargs, but kwargs must be a dict;"),
        ("return print, (), {1: 2}", "returned kwargs with the key 1, but every key must be a str"),
        ("raise ValueError('no weights')", "failed at line 2: ValueError: no weights"),
        ("raise ValueError('one\\ntwo')", "failed at line 2: ValueError: one"),
        ("import no_such_package", "failed at line 2: ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_return_value_of_the_function_is_checked(tmp_path: Path, body: str, message: str) -> None:
    file = write(tmp_path, f"def build():\n    {body}\n")
    with pytest.raises(RocsolidError) as error:
        load_workload(f"{file}:build")

    assert message in str(error.value)
    first, *source = str(error.value).splitlines()
    assert message in first
    assert len(source) == (1 if "failed" in message else 0)
    assert error.value.exit_code == 2


def test_syntax_error_names_the_line(tmp_path: Path) -> None:
    file = write(tmp_path, "x = 1\ndef build(:\n")
    with pytest.raises(InputError, match="failed at line 2: SyntaxError"):
        load_workload(f"{file}:build")
