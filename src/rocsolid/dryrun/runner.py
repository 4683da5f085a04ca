"""Starts the child process of a dry run, with a deadline, and reads its result."""

import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rocsolid.catalog.chips import TRITON_RELEASES, triton_for
from rocsolid.dryrun.request import REQUEST_SCHEMA, ChildResult, Request
from rocsolid.errors import CannotRunError, InputError, TimedOutError
from rocsolid.measure import user_cache
from rocsolid.model.codec import decode, encode
from rocsolid.model.dryrun import DryRun
from rocsolid.model.environment import CheckResult, CheckStatus
from rocsolid.model.release import compare
from rocsolid.torchapi.pretend.device import build_stub_library

_FIRST_TO_COMPILE_FAKE_TENSORS: Final = "2.11"
# Runs a command with its environment and deadline; returns how it ended, and its stderr.
RunCommand = Callable[[Sequence[str], Mapping[str, str], float], tuple[CheckResult, str]]
_VERSION: Final = re.compile(r"^__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class RunnerContext:
    """What all child processes of one call share."""

    run_command: RunCommand
    cache: Path
    deadline_s: float
    progress: Callable[[str], None]


def default_cache() -> Path:
    """The folder in which compiled kernels are cached."""
    return user_cache.cache_folder("dryrun")


def check_folder(folder: Path, content: str, *, loads_code: bool = False) -> None:
    """Create a folder and check that it is writable, before anything is compiled; raises CannotRunError.

    With `loads_code`, a folder that other users may write is refused.
    """
    try:
        if loads_code:
            with user_cache.open_folder(folder, create=True):
                pass
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        msg = f"cannot write {content} to {folder}: {error.strerror}; choose another folder"
        raise CannotRunError(msg) from error


def version_note(*, compiles: bool = False) -> str:
    """Return a note if these versions of torch and Triton are untested together; raises CannotRunError if they do not match.

    With `compiles`, the dry run also uses `torch.compile`.
    """
    torch, triton = _version("torch", "version.py"), _version("triton", "__init__.py")
    if not torch:
        msg = "a dry run needs torch, which is not installed"
        raise CannotRunError(msg)
    if compiles and compare(torch, _FIRST_TO_COMPILE_FAKE_TENSORS) < 0:
        msg = (
            f"a dry run of a workload needs torch {_FIRST_TO_COMPILE_FAKE_TENSORS} or later, and torch {torch} is installed: "
            "before, torch.compile did not accept fake tensors (rocsolid dryrun --kernels FILE.py works)"
        )
        raise CannotRunError(msg)
    matching = triton_for(torch)
    if not triton:
        hint = (
            f"pip install 'triton=={matching}.*'"
            if matching
            else "install the Triton version that it was released with"
        )
        msg = f"a dry run with torch {torch} needs Triton, which is not installed: {hint}"
        raise CannotRunError(msg)
    if matching and compare(triton, matching) != 0:
        msg = (
            f"torch {torch} needs Triton {matching}, but Triton {triton} is installed: "
            f"pip install 'triton=={matching}.*' (in a separate environment, if you need Triton {triton} too)"
        )
        raise CannotRunError(msg)
    if matching is None:
        known = ", ".join(
            f"torch {torch_release} with Triton {triton_release}"
            for torch_release, triton_release in TRITON_RELEASES.items()
        )
        return f"torch {torch} with Triton {triton} is untested (tested: {known}); the result may be incomplete"
    return ""


def run_request(request: Request, context: RunnerContext) -> DryRun:
    """Run a request in a child process and return the dry run; raises the child's error."""
    run = run_child(request, context).run
    if run is None:
        msg = f"the dry run for {request.target} ended without a result"
        raise CannotRunError(msg)
    return run


def run_child(request: Request, context: RunnerContext) -> ChildResult:
    """Run a request in a child process; raises the child's error."""
    guard = build_stub_library(context.cache) if request.workload or request.tests else ""
    with tempfile.TemporaryDirectory(prefix="rocsolid-dryrun-") as folder:
        journal = Path(folder) / "journal"
        child_request = replace(request, guard=str(guard), journal=str(journal), parent_pid=os.getpid())
        result, ended, errors = _run_child(child_request, Path(folder), context)
        if result is None:
            raise _failure(request, ended, errors, _unfinished_kernel(journal), context.deadline_s)
    if result.error:
        raise (InputError if result.usage_error else CannotRunError)(result.error)
    return result


def _run_child(request: Request, folder: Path, context: RunnerContext) -> tuple[ChildResult | None, CheckResult, str]:
    request_file, result_file = folder / "request.json", folder / "result.json"
    request_file.write_text(json.dumps({"schema": REQUEST_SCHEMA, **encode(request)}))
    environ = {
        "TRITON_DEFAULT_FP_FUSION": "1",
        **os.environ,
        "TRITON_INTERPRET": "0",  # the interpreter does not compile
        "TRITON_CACHE_DIR": str(context.cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(context.cache / "inductor"),
    }
    command = [sys.executable, "-m", "rocsolid.dryrun.compile_process", str(request_file), str(result_file)]
    with _report_progress(Path(request.journal), context.progress):
        ended, errors = context.run_command(command, environ, context.deadline_s)
    if not result_file.exists():
        return None, ended, errors
    data = json.loads(result_file.read_text(encoding="utf-8"))
    return decode(ChildResult, data["result"], "result"), ended, errors


def _failure(request: Request, ended: CheckResult, errors: str, kernel: str, deadline_s: float) -> Exception:
    name = request.workload or " ".join(request.tests or request.kernels)
    doing = "tracing" if request.workload else "running its tests" if request.tests else "reading it"
    phase = f" while compiling {kernel}" if kernel else f" while {doing}"
    if ended.status is CheckStatus.HUNG:
        return TimedOutError(
            f"the dry run of {name} for {request.target} exceeded its deadline of {deadline_s:g} s{phase}"
        )
    lines = [line for line in errors.splitlines() if line.strip()]
    detail = ended.detail or (lines[-1] if lines else "no error message")
    return CannotRunError(f"the dry run of {name} for {request.target} {ended.status.value}{phase}: {detail}")


def _unfinished_kernel(journal: Path) -> str:
    """The kernel that was being compiled when the child ended; empty if none."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    started = [line.removeprefix("begin ") for line in lines if line.startswith("begin ")]
    ended = {line.removeprefix("end ") for line in lines if line.startswith("end ")}
    return next((key for key in reversed(started) if key not in ended), "")


@contextmanager
def _report_progress(journal: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Pass on the progress lines that the child writes to its journal."""
    finished = threading.Event()

    def follow() -> None:
        reported = 0
        while not finished.wait(0.5):
            lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
            for line in lines[reported:]:
                if line.startswith("at "):
                    progress(line.removeprefix("at "))
            reported = len(lines)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _version(package: str, file: str) -> str:
    """The version of a package, read from its files without importing it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    found = _VERSION.search((Path(spec.origin).parent / file).read_text(encoding="utf-8"))
    return found[1] if found else ""
