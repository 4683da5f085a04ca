"""Runs a dry run's child from outside: a fresh process each, against a deadline."""

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

from rocsolid.catalog.chips import TESTED_TORCH, TRITON_RELEASES, triton_for
from rocsolid.dryrun.request import REQUEST_SCHEMA, ChildAnswer, Request
from rocsolid.errors import CannotRunError, InputError, TimedOutError
from rocsolid.measure import user_cache
from rocsolid.model.codec import decode, dumps
from rocsolid.model.dryrun import DryRun
from rocsolid.model.environment import CheckResult, CheckStatus
from rocsolid.model.release import compare, parts
from rocsolid.torchapi.pretend.device import build_guard

Asker = Callable[[Sequence[str], Mapping[str, str], float], tuple[CheckResult, str]]  # how it ended, and its stderr
_VERSION: Final = re.compile(r"^__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What every child of one call shares."""

    ask: Asker
    cache: Path
    deadline_s: float
    progress: Callable[[str], None]


def default_cache() -> Path:
    """Where compiled kernels are kept from one dry run to the next."""
    return user_cache.folder_for("dryrun")


def check_folder(folder: Path, what: str) -> None:
    """Make it, and see that it can be written into; raises CannotRunError, before anything is compiled for nothing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as refused:
        msg = f"cannot keep {what} in {folder}: {refused.strerror}; name another folder"
        raise CannotRunError(msg) from refused


def pair_note() -> str:
    """A word on this pair of torch and Triton where it is untried; raises CannotRunError for one that does not fit."""
    torch, triton = _version("torch", "version.py"), _version("triton", "__init__.py")
    if not torch:
        msg = "a dry run needs torch, and it is not installed"
        raise CannotRunError(msg)
    release = ".".join(str(number) for number in parts(torch)[:2])
    wanted = triton_for(torch)
    if not triton:
        hint = f"pip install 'triton=={wanted}.*'" if wanted else "install the Triton it was released with"
        msg = f"a dry run needs Triton beside torch {torch}, and it is not installed: {hint}"
        raise CannotRunError(msg)
    if wanted and compare(triton, wanted) != 0:
        msg = (
            f"torch {torch} goes with Triton {wanted}, and here is Triton {triton}: "
            f"pip install 'triton=={wanted}.*', in an environment of its own if you need the other"
        )
        raise CannotRunError(msg)
    if wanted is None:
        known = ", ".join(f"torch {a} with Triton {b}" for a, b in TRITON_RELEASES.items())
        return f"torch {torch} with Triton {triton} is no pair we know ({known}); what follows may be incomplete"
    return "" if release in TESTED_TORCH else f"the dry run was not tried with torch {release} and Triton {wanted}"


def run_request(request: Request, around: Surroundings) -> DryRun:
    """Ask a child; raises what it could not do."""
    guard = build_guard(around.cache) if request.workload else ""
    with tempfile.TemporaryDirectory(prefix="rocsolid-dryrun-") as folder:
        journal = Path(folder) / "journal"
        asked = replace(request, guard=str(guard), journal=str(journal), asker=os.getpid())
        answer, ended, errors = _ask_once(asked, Path(folder), around)
        if answer is None:
            raise _failure(request, ended, errors, _open_key(journal), around.deadline_s)
    return _run_of(answer)


def _ask_once(request: Request, folder: Path, around: Surroundings) -> tuple[ChildAnswer | None, CheckResult, str]:
    question, reply = folder / "request.json", folder / "answer.json"
    question.write_text(dumps(REQUEST_SCHEMA, **{k: getattr(request, k) for k in request.__dataclass_fields__}))
    environ = {
        "TRITON_DEFAULT_FP_FUSION": "1",
        **os.environ,
        "TRITON_INTERPRET": "0",  # an interpreter has nothing to compile
        "TRITON_CACHE_DIR": str(around.cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(around.cache / "inductor"),
    }
    command = [sys.executable, "-m", "rocsolid.dryrun.compile_process", str(question), str(reply)]
    with _followed(Path(request.journal), around.progress):
        ended, errors = around.ask(command, environ, around.deadline_s)
    if not reply.exists():
        return None, ended, errors
    data = json.loads(reply.read_text(encoding="utf-8"))
    return decode(ChildAnswer, data["answer"], "answer"), ended, errors


def _run_of(answer: ChildAnswer) -> DryRun:
    if answer.run is not None:
        return answer.run
    raise (InputError if answer.usage else CannotRunError)(answer.error)


def _failure(request: Request, ended: CheckResult, errors: str, key: str, deadline_s: float) -> Exception:
    what = request.workload or request.file
    at = f" while compiling {key}" if key else " while loading it" if request.file else " while tracing"
    if ended.status is CheckStatus.HUNG:
        return TimedOutError(f"the dry run of {what} for {request.target} was not done after {deadline_s:g} s{at}")
    lines = [line for line in errors.splitlines() if line.strip()]
    said = ended.detail or (lines[-1] if lines else "it said nothing")
    return CannotRunError(f"the dry run of {what} for {request.target} {ended.status.value}{at}: {said}")


def _open_key(journal: Path) -> str:
    """What was being compiled when the child ended; empty when nothing was."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    begun = [line.removeprefix("begin ") for line in lines if line.startswith("begin ")]
    ended = {line.removeprefix("end ") for line in lines if line.startswith("end ")}
    return next((key for key in reversed(begun) if key not in ended), "")


@contextmanager
def _followed(journal: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Pass on what the child writes about its progress while it runs."""
    done = threading.Event()

    def follow() -> None:
        told = 0
        while not done.wait(0.5):
            lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
            for line in lines[told:]:
                if line.startswith("at "):
                    progress(line.removeprefix("at "))
            told = len(lines)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _version(package: str, file: str) -> str:
    """A package's version as its files say it, without importing it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    found = _VERSION.search((Path(spec.origin).parent / file).read_text(encoding="utf-8"))
    return found[1] if found else ""
