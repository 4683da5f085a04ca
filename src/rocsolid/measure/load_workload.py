"""Load a workload: run the user's file and call the named function, but not the callable that it returns.

Every command loads workloads with this module, so that `file.py:function` always has the same meaning.
"""

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rocsolid.errors import CannotRunError, InputError, UnknownNameError, first_line
from rocsolid.model.code_line import CodeLine
from rocsolid.model.workload import Workload, WorkloadName

_RETURNED_PARTS: Final = 3  # callable, args, kwargs


def load_workload(name: str | WorkloadName) -> Workload:
    """Run the file, call the function, and check what it returns.

    Raises UsageError, or one of its subclasses, if the name is not `file.py:function`, if the file or function is missing or fails,
    or if the function returns something else than `(callable, args, kwargs)`.
    """
    parsed = WorkloadName.parse(name) if isinstance(name, str) else name
    with _folder_on_path(parsed.file):
        module = _run_file(parsed.file)
        function = vars(module).get(parsed.function)
        if not callable(function):
            known = [
                name
                for name, value in vars(module).items()
                if callable(value) and getattr(value, "__module__", "") == module.__name__
            ]
            raise UnknownNameError(kind="function", where=str(parsed.file), name=parsed.function, known=known)
        returned = _run_user_code(function, str(parsed), parsed.file)
    return _check_returned(returned, str(parsed))


def _run_file(file: Path) -> ModuleType:
    if not file.is_file():
        reason = "is a folder" if file.is_dir() else "does not exist"
        msg = f"the workload file {file} {reason}"
        raise InputError(msg)
    # The module name is unique, so that two files with the same name do not conflict. The module is in sys.modules, so that its
    # classes can be pickled.
    name = f"rocsolid_workload_{file.stem}_{abs(hash(str(file.resolve())))}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        msg = f"{file} is not a Python file"
        raise InputError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader
    _run_user_code(lambda: loader.exec_module(module), str(file), file)
    return module


def _run_user_code(code: Callable[[], Any], name: str, file: Path) -> Any:  # noqa: ANN401 - the user's
    """Run the user's code; an exception becomes an InputError with the user's line."""
    try:
        return code()
    except ModuleNotFoundError as missing:
        if missing.name in ("torch", "triton"):  # an environment without torch, not a mistake in the file
            msg = f"the workload {name} needs {missing.name}, which is not installed for {sys.executable}"
            if missing.name == "triton":
                msg += "\nfix: install the release that belongs to your torch; `rocsolid dryrun` prints the command"
            raise CannotRunError(msg) from missing
        raise _failure(missing, name, file) from missing
    except (Exception, SystemExit) as error:
        raise _failure(error, name, file) from error


def _failure(error: BaseException, name: str, file: Path) -> InputError:
    """Return an InputError with the user's line."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if Path(frame.filename) in (file, file.resolve())]
    last = user_frames[-1] if user_frames else None
    # A syntax error has no frame in the file, but names the line itself.
    line, text = (last.lineno, last.line) if last else (getattr(error, field, None) for field in ("lineno", "text"))
    source = CodeLine(file=str(file), line=line or 0, text=(text or "").rstrip())
    msg = f"the workload {name} failed at line {line or '?'}: {_description(error)}"
    return InputError(f"{msg}\n  {source}" if source.text else msg)


def _description(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r}) before it was finished"
    return f"{type(error).__name__}: {first_line(error)}"


def _check_returned(returned: object, name: str) -> Workload:
    expected = "a workload function must return (callable, args, kwargs)"
    if not isinstance(returned, tuple) or len(returned) != _RETURNED_PARTS:
        actual = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else type(returned).__name__
        msg = f"{name} returned {actual}; {expected}"
        raise InputError(msg)
    function, args, kwargs = returned
    if not callable(function):
        msg = f"{name} returned {type(function).__name__} as the callable, which cannot be called; {expected}"
        raise InputError(msg)
    if not isinstance(args, (tuple, list)):
        msg = f"{name} returned {type(args).__name__} as args, but args must be a tuple; {expected}"
        raise InputError(msg)
    if not isinstance(kwargs, Mapping):
        msg = f"{name} returned {type(kwargs).__name__} as kwargs, but kwargs must be a dict; {expected}"
        raise InputError(msg)
    for key in kwargs:
        if not isinstance(key, str):
            msg = f"{name} returned kwargs with the key {key!r}, but every key must be a str, the name of an argument; {expected}"
            raise InputError(msg)
    return Workload(name=name, callable=function, args=tuple(args), kwargs=dict(kwargs))


@contextmanager
def _folder_on_path(file: Path) -> Iterator[None]:
    """Let the file import modules from its own folder, as `python file.py` does."""
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
