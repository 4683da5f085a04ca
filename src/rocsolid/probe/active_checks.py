"""Run the active checks: small real computations, each in a child process that may hang or crash."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from rocsolid.catalog.problems import problem
from rocsolid.model.environment import CheckResult, CheckStatus, Environment
from rocsolid.probe.active_programs import GROUPS
from rocsolid.process.run_command import Command, run_with_deadline

_DEADLINES_S: Final = {"gemm": 120.0, "compile": 240.0, "capture": 120.0, "fp8": 120.0}
_CAPTURES: Final = 3
# If one process in five replays wrongly, 14 correct processes in a row have a chance of 5 %.
_CAPTURES_WHERE_REPLAYS_CORRUPT: Final = 14


def run_checks(env: Environment, progress: Callable[[str], None] = lambda _: None) -> Iterator[CheckResult]:
    """Yield one result per check; `progress` is called with the name of each group before it starts."""
    corrupting = problem("hip-graph-replay-corruption").applies(env)
    rounds = {"capture": _CAPTURES_WHERE_REPLAYS_CORRUPT if corrupting else _CAPTURES}
    for group, names in GROUPS.items():
        for number in range(rounds.get(group, 1)):
            suffix = f" (process {number + 1})" if group in rounds else ""
            progress(f"{group}{suffix}")
            results = [replace(result, name=result.name + suffix) for result in _run_group(group, names)]
            yield from results
            if all(result.status is CheckStatus.SKIPPED for result in results):
                break


def _run_group(group: str, names: Sequence[str]) -> Iterator[CheckResult]:
    """Run all checks of a group in one process; after a crash or a hang, a new process runs the remaining ones."""
    left = list(names)
    while left:
        command = [sys.executable, "-m", "rocsolid.probe.active_programs", *left]
        reply = run_with_deadline(
            Command(name=group, command=command, deadline_s=_DEADLINES_S[group], env=dict(os.environ))
        )
        for result in filter(None, map(_parse_line, reply.stdout.splitlines())):
            yield result
            left.remove(result.name)
        if reply.check.status is CheckStatus.OK:
            left.clear()
        elif left:
            # Checks run in order, so the first one without a result ended the process.
            yield replace(reply.check, name=left.pop(0))


def _parse_line(text: str) -> CheckResult | None:
    """The result on one line of output; None for anything else, because libraries print to stdout too."""
    try:
        data = json.loads(text)
        return CheckResult(
            name=data["rocsolid"],
            status=CheckStatus(data["status"]),
            detail=data["detail"],
            seconds=data["seconds"],
            facts=data["facts"],
        )
    except (ValueError, KeyError, TypeError):
        return None
