"""Runs tests with pytest so that one which hangs or ends the process costs only itself: the others continue in a new process.

As a plugin of pytest, this module writes each start and result to a file, and leaves out tests that an earlier process has started.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

_FOLDER: Final = "ROCSOLID_GPU_CASES"
_DEADLINE: Final = "ROCSOLID_GPU_CASES_DEADLINE"
_DEADLINE_S: Final = 100.0  # of one test
_MAX_DEATHS: Final = 6  # every new process imports torch and collects the tests again
_SHOWN: Final = 5
_MAX_OUTPUT: Final = 600  # of each process, so that all fit into the record


@dataclass(frozen=True, kw_only=True)
class CaseResults:
    """The names of the tests by how they ended. Those in `died` hung or ended their process."""

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()  # the test itself did not run
    skipped: tuple[str, ...] = ()
    died: tuple[str, ...] = ()  # with the reason
    output: str = ""

    def __str__(self) -> str:
        counts = [
            f"{len(names)} {word}"
            for word in ("passed", "failed", "errors", "skipped", "died")
            if (names := getattr(self, word))
        ]
        wrong = [*self.died, *self.failed, *self.errors]
        more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        return "; ".join([", ".join(counts) or f"no test ran: {self.output[-300:]}", *wrong[:_SHOWN], *more])


def run_gpu_cases(tests: Path, root: Path, *, mark: str = "gpu", deadline_s: float = _DEADLINE_S) -> CaseResults:
    """Run the tests with this mark in a folder or file, in as many processes as needed."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", mark, "--continue-on-collection-errors"]
    command += ["-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", __name__, str(tests)]
    died: list[str] = []
    printed = ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": paths, _FOLDER: name, _DEADLINE: str(deadline_s)}
        while len(died) < _MAX_DEATHS:
            done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)  # noqa: S603
            printed += f"{done.stdout}\n{done.stderr}".strip()[-_MAX_OUTPUT:] + "\n"
            results = dict(_lines(folder))
            left = [test for test, how in results.items() if how == "started" and not _named(test, died)]
            if not left:
                break
            hung = folder / "hung"
            stack = hung.read_text(encoding="utf-8", errors="replace") if hung.exists() else ""
            hung.unlink(missing_ok=True)
            printed += stack[:_MAX_OUTPUT] + "\n"  # the last call is the first line
            died.append(f"{left[0]} {f'hung for {deadline_s:g} s' if stack else _ending(done.returncode)}")
    by_result = {how: tuple(t for t, seen in results.items() if seen == how) for how in ("passed", "failed", "skipped")}
    errors = tuple(test for test, how in results.items() if how == "error")
    return CaseResults(**by_result, errors=errors, died=tuple(died), output=printed.strip())


def _named(test: str, died: list[str]) -> bool:
    return any(text.startswith(f"{test} ") for text in died)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended the process with exit code {code}"
    return f"ended the process with {signal.Signals(-code).name}"


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    file = folder / "results"
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        test, how = json.loads(line)
        yield test, how


def _note(test: str, how: str) -> None:
    with Path(os.environ[_FOLDER], "results").open("a", encoding="utf-8") as opened:
        opened.write(json.dumps([test, how]) + "\n")


def _end_when_hung() -> None:
    """End the process if this is not called again in time, also when a call into the runtime never returns."""
    global _stack  # noqa: PLW0603
    _stack = _stack or Path(os.environ[_FOLDER], "hung").open("w", encoding="utf-8")  # noqa: SIM115 - it must stay open
    faulthandler.dump_traceback_later(float(os.environ[_DEADLINE]), exit=True, file=_stack)


_stack: IO[str] | None = None


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Leave out the tests that an earlier process started."""
    earlier = dict(_lines(Path(os.environ[_FOLDER])))
    items[:] = [item for item in items if item.nodeid not in earlier]


def pytest_collectreport(report: Any) -> None:
    """Note a file that cannot be imported."""
    if report.failed:
        _note(report.nodeid, "error")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note that a test starts."""
    _note(nodeid, "started")
    _end_when_hung()


def pytest_runtest_logreport(report: Any) -> None:
    """Note how a test ended."""
    if report.when == "call" or not report.passed:
        _note(report.nodeid, "error" if report.failed and report.when != "call" else report.outcome)


def pytest_sessionfinish() -> None:
    """The runtime may hang at exit after a failed capture."""
    _end_when_hung()
