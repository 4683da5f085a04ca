"""Loads a workload: every room does it here, in its own process, so that a name means the same everywhere.

Loading runs the user's file; it does not call the callable.
"""

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rocsolid.errors import InputError, UnknownNameError, first_line
from rocsolid.model.workload import Workload, WorkloadName

_PARTS: Final = 3


def load_workload(name: str | WorkloadName) -> Workload:
    """Run the file, call the function, and check what it returns.

    Raises UsageError and its kin, one line each, for a name that is none, a file that is missing or fails, a function that is
    missing or fails, and a wrong return value.
    """
    parsed = WorkloadName.parse(name) if isinstance(name, str) else name
    with _folder_on_path(parsed.file):
        module = _run_file(parsed.file)
        function = vars(module).get(parsed.function)
        if not callable(function):
            known = [
                n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__
            ]
            raise UnknownNameError(kind=f"function in {parsed.file}", name=parsed.function, known=known)
        made = _telling(function, str(parsed), parsed.file)
    return _checked(made, str(parsed))


def _run_file(file: Path) -> ModuleType:
    if not file.is_file():
        reason = "is a folder" if file.is_dir() else "does not exist"
        msg = f"the workload's file {file} {reason}"
        raise InputError(msg)
    # A name of its own, so that two files called alike do not meet; in sys.modules, so that its classes can be pickled.
    name = f"rocsolid_workload_{file.stem}_{abs(hash(str(file.resolve())))}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        msg = f"{file} is not a Python file"
        raise InputError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader
    _telling(lambda: loader.exec_module(module), str(file), file)
    return module


def _telling(act: Callable[[], Any], what: str, file: Path) -> Any:  # noqa: ANN401 - the user's
    """Run the user's code; what it raises becomes one line that names its own line."""
    try:
        return act()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename) in (file, file.resolve())]
        place = f" at line {own[-1].lineno}" if own else f" at line {getattr(error, 'lineno', '?')}"
        msg = f"the workload {what} failed{place}: {type(error).__name__}: {first_line(error)}"
        raise InputError(msg) from error


def _checked(made: object, name: str) -> Workload:
    wanted = "a workload returns (callable, args, kwargs)"
    if not isinstance(made, tuple) or len(made) != _PARTS:
        seen = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        msg = f"{name} returned {seen}; {wanted}"
        raise InputError(msg)
    function, args, kwargs = made
    if not callable(function):
        msg = f"{name} returned {type(function).__name__} first, which cannot be called; {wanted}"
        raise InputError(msg)
    if not isinstance(args, (tuple, list)):
        msg = f"{name} returned {type(args).__name__} as args, and they must be a tuple; {wanted}"
        raise InputError(msg)
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        msg = f"{name} returned {type(kwargs).__name__} as kwargs, and they must be a dict with names; {wanted}"
        raise InputError(msg)
    return Workload(name=name, callable=function, args=tuple(args), kwargs=dict(kwargs))


@contextmanager
def _folder_on_path(file: Path) -> Iterator[None]:
    """Let the file import its neighbours, as `python file.py` would."""
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
