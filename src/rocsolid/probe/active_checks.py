"""Run the active checks: small real computations, each in a child process that may hang or crash."""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from rocsolid.catalog.problems import problem
from rocsolid.model.environment import CheckResult, CheckStatus, Environment
from rocsolid.probe.active_programs import GROUPS
from rocsolid.process.run_command import Command, module_command, run_with_deadline

_DEADLINES_S: Final = {"gemm": 120.0, "compile": 240.0, "capture": 120.0, "fp8": 120.0}
_CAPTURE_PROCESSES: Final = 3
# On the ROCm versions where replays are wrong in about one process of five, 14 processes find the error with a probability of 95 %.
_CAPTURE_PROCESSES_IF_CORRUPTING: Final = 14


def run_checks(env: Environment, progress: Callable[[str], None] = lambda _: None) -> Iterator[CheckResult]:
    """Run the checks and yield the result of each; `progress` is called with the name of each group before it starts."""
    if importlib.util.find_spec("torch") is None:
        yield CheckResult(
            name="active checks", status=CheckStatus.SKIPPED, seconds=0.0, detail="torch is not installed"
        )
        return
    replays_corrupt = problem("hip-graph-replay-corruption").applies(env)
    processes = {"capture": _CAPTURE_PROCESSES_IF_CORRUPTING if replays_corrupt else _CAPTURE_PROCESSES}
    for group, names in GROUPS.items():
        total = processes.get(group, 1)
        for number in range(1, total + 1):
            suffix = f" (process {number})" if group in processes else ""
            progress(f"{group} (process {number} of {total})" if group in processes else group)
            results = [replace(result, name=result.name + suffix) for result in _run_group(group, names)]
            yield from results
            if all(result.status is CheckStatus.SKIPPED for result in results):
                break


def _run_group(group: str, names: Sequence[str]) -> Iterator[CheckResult]:
    """Run all checks of a group in one process; after a crash or a hang, a new process runs the remaining checks."""
    remaining = list(names)
    while remaining:
        command = module_command("rocsolid.probe.active_programs", *remaining)
        reply = run_with_deadline(
            Command(name=group, command=command, deadline_s=_DEADLINES_S[group], env=dict(os.environ))
        )
        for result in filter(None, map(_parse_line, reply.stdout.splitlines())):
            yield result
            remaining.remove(result.name)
        if reply.check.status is CheckStatus.OK:
            remaining.clear()
        elif remaining:
            # Checks run in order, so the first one without a result ended the process.
            yield replace(reply.check, name=remaining.pop(0))


def _parse_line(text: str) -> CheckResult | None:
    """Parse one line of output; None if it is not a result, because libraries print to stdout too."""
    try:
        data = json.loads(text)
        return CheckResult(
            name=data["rocsolid"],
            status=CheckStatus(data["status"]),
            detail=data["detail"],
            seconds=data["seconds"],
            measurements=data["measurements"],
        )
    except (ValueError, KeyError, TypeError):
        return None
