"""Runs the checks, each in a child process with a deadline, and keeps a journal so that an interrupted run continues."""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError, UnknownNameError
from rocsolid.model.codec import decode, encode
from rocsolid.model.environment import CheckStatus
from rocsolid.model.progress import OnStep, Step, ignore_step
from rocsolid.model.proof import CheckRun, Claim, ClaimResult, ClaimVerdict
from rocsolid.process.run_command import Command, CommandResult, module_command, run_with_deadline
from rocsolid.prove.child import MARK

_MAX_STARTS: Final = 6  # a check that was started this often without a result is not tried again,
_MAX_BOOTS: Final = 2  # nor one after which the machine was restarted this often
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MAX_OUTPUT: Final = 4000
_ALONE: Final = 40  # checks with this rank or a higher one run alone, after the others
_MIN_SECONDS: Final = 2.0  # with less time left nothing is started


@dataclass(frozen=True, kw_only=True)
class PlannedCheck:
    """One check of a run."""

    name: str
    claims: tuple[Claim, ...]
    command: tuple[str, ...]
    rank: int = 0
    estimate_s: float = 10.0
    deadline_s: float = 120.0
    gpu: bool = False


@dataclass(kw_only=True)
class Journal:
    """A file with one line per event, written through to the disk. A line that was cut off is ignored."""

    file: Path
    header: Mapping[str, str]  # what must be the same for the results to be used again
    done: dict[str, CheckRun] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    boots: dict[str, set[str]] = field(default_factory=dict)  # the boots of the machine in which each check was started

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._boot = _BOOT_ID.read_text(encoding="utf-8").strip() if _BOOT_ID.exists() else ""
        lines = list(self._lines())
        if not lines or lines[0] != {"header": dict(self.header)}:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text("", encoding="utf-8")
            self._append({"header": dict(self.header)})
            return
        for line in lines[1:]:
            if "begin" in line:
                self.starts[str(line["begin"])] += 1
                self.boots.setdefault(str(line["begin"]), set()).add(str(line.get("boot", "")))
            elif "run" in line:
                run = decode(CheckRun, line["run"], str(self.file))
                self.done[run.check] = run

    def _lines(self) -> Iterator[dict[str, object]]:
        if not self.file.exists():
            return
        try:
            text = self.file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            msg = f"cannot read {self.file}: {error.strerror}"
            raise InputError(msg) from error
        for line in text.splitlines():
            try:
                data = json.loads(line)
            except ValueError:
                continue
            if isinstance(data, dict):
                yield data

    def begin(self, check: str) -> None:
        """Note that a check starts."""
        self.starts[check] += 1
        self._append({"begin": check, "boot": self._boot})

    def reason_to_skip(self, check: str) -> str:
        """Why a check is not tried again; empty if it is."""
        if len(self.boots.get(check, set()) - {self._boot}) >= _MAX_BOOTS:
            return f"the machine was restarted {_MAX_BOOTS} times during this check"
        if self.starts[check] >= _MAX_STARTS:
            return f"it was started {_MAX_STARTS} times without a result"
        return ""

    def end(self, run: CheckRun) -> None:
        """Store a finished check."""
        self.done[run.check] = run
        self._append({"run": encode(run)})

    def _append(self, data: Mapping[str, object]) -> None:
        with self._lock, self.file.open("a", encoding="utf-8") as opened:
            opened.write(f"\n{json.dumps(data)}" if opened.tell() else json.dumps(data))
            opened.flush()
            os.fsync(opened.fileno())


def plan_checks(claims: Sequence[Claim], only: Sequence[str] = ()) -> list[PlannedCheck]:
    """Return the checks of these claims, most valuable first. `only` names claims, checks, or the kind of either."""
    from rocsolid.catalog.claims import by_check
    from rocsolid.prove.check import find_check

    grouped = by_check(claims)
    wanted = {name for given in only for name in _names(given, claims, grouped)}
    planned = []
    for name, group in grouped.items():
        if wanted and name not in wanted:
            continue
        declared = find_check(name)
        planned.append(
            PlannedCheck(
                name=name,
                claims=tuple(group),
                command=tuple(module_command("rocsolid.prove.child", name)),
                rank=declared.rank,
                estimate_s=declared.estimate_s,
                deadline_s=declared.deadline_s,
                gpu=declared.gpu,
            )
        )
    return sorted(planned, key=lambda check: (check.rank, check.name))


def _names(given: str, claims: Sequence[Claim], grouped: Mapping[str, Sequence[Claim]]) -> set[str]:
    found = {name for name in grouped if given in (name, name.partition(":")[0])}
    found |= {claim.check for claim in claims if claim.check and given in (claim.id, claim.id.partition("/")[0])}
    if not found:
        raise UnknownNameError(kind="claim or check", name=given, known=[*grouped, *(claim.id for claim in claims)])
    return found


def run_checks(
    checks: Sequence[PlannedCheck],
    journal: Journal,
    *,
    seconds: float,
    on_step: OnStep = ignore_step,
    workers: int = 1,
    gpu_workers: int = 1,
) -> list[str]:
    """Run the checks that the journal does not have, and return the names of those for which there was no time.

    Checks of the GPU run one after the other, or `gpu_workers` at a time, while others run on the CPU. Checks that take times or long
    run after them, alone.
    """
    ends = time.monotonic() + seconds
    open_checks = [check for check in checks if check.name not in journal.done]
    finished = len(checks) - len(open_checks)
    late: list[str] = []
    lock = threading.Lock()

    def run(check: PlannedCheck) -> None:
        nonlocal finished
        left_s = ends - time.monotonic()
        if left_s < min(check.estimate_s, seconds / 2) or left_s < _MIN_SECONDS:
            late.append(check.name)
            return
        on_step(Step(what=check.name, done=finished, total=len(checks)))
        if reason := journal.reason_to_skip(check.name):
            journal.end(without_result(check, "failed", 0.0, reason))
        elif not _run_one(check, journal, left_s):
            late.append(check.name)
            return
        with lock:
            finished += 1

    on_gpu = [check for check in open_checks if check.gpu and check.rank < _ALONE]
    on_cpu = [check for check in open_checks if not check.gpu and check.rank < _ALONE]
    with ThreadPoolExecutor(gpu_workers) as gpu_pool, ThreadPoolExecutor(workers) as cpu_pool:
        for future in [*(gpu_pool.submit(run, c) for c in on_gpu), *(cpu_pool.submit(run, c) for c in on_cpu)]:
            future.result()
    for check in open_checks:
        if check.rank >= _ALONE:
            run(check)
    return late


def _run_one(check: PlannedCheck, journal: Journal, left_s: float) -> bool:
    """Run a check; False if the time of the whole run ended it, so that the next run must repeat it."""
    journal.begin(check.name)
    limit_s = min(check.deadline_s, left_s)
    done = run_with_deadline(Command(name=check.name, command=check.command, deadline_s=limit_s, env=dict(os.environ)))
    if done.check.status is CheckStatus.HUNG and limit_s < check.deadline_s:
        journal.starts[check.name] -= 1
        return False
    journal.end(to_run(check, done))
    return True


def to_run(check: PlannedCheck, done: CommandResult) -> CheckRun:
    """Read the verdicts from what the child printed; claims without one could not be decided."""
    results: dict[str, ClaimResult] = {}
    printed = []
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            verdict = decode(ClaimResult, json.loads(line.removeprefix(MARK)), check.name)
            results[verdict.claim] = verdict
        elif line.strip():
            printed.append(line)
    output = "\n".join([*printed, done.stderr.strip()]).strip()[-_MAX_OUTPUT:]
    ended = done.check.status.value
    reason = f"the check {'ended without a verdict' if ended == 'ok' else ended}: {done.check.detail}".rstrip(": ")
    missing = without_result(check, ended, done.check.seconds, reason)
    ordered = tuple(results.get(row.claim, row) for row in missing.results)
    return replace(missing, results=ordered, output=output)


def without_result(check: PlannedCheck, ended: str, seconds: float, reason: str) -> CheckRun:
    """Return a check that decided nothing, with the reason."""
    rows = (ClaimResult(claim=claim.id, verdict=ClaimVerdict.COULD_NOT_RUN, detail=reason) for claim in check.claims)
    return CheckRun(check=check.name, ended=ended, seconds=seconds, results=tuple(rows))
