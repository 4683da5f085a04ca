"""Runs small real computations, each in a process that may hang or die."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from rocsolid.catalog.problems import problem
from rocsolid.model.environment import Answer, Ending, Environment
from rocsolid.probe.active_programs import GROUPS
from rocsolid.process.run_command import Command, run_with_deadline

_DEADLINES_S: Final = {"gemm": 120.0, "compile": 240.0, "capture": 120.0, "fp8": 120.0}
_CAPTURES: Final = 3
_CAPTURES_WHERE_REPLAYS_CORRUPT: Final = 14  # at one bad process in five, 14 good ones are 95 % sure


def run_checks(env: Environment, progress: Callable[[str], None] = lambda _: None) -> Iterator[Answer]:
    """One answer per computation; `progress` hears the name of each as it starts."""
    corrupting = problem("hip-graph-replay-corruption").applies(env)
    rounds = {"capture": _CAPTURES_WHERE_REPLAYS_CORRUPT if corrupting else _CAPTURES}
    for group, names in GROUPS.items():
        for number in range(rounds.get(group, 1)):
            again = f" (process {number + 1})" if group in rounds else ""
            progress(f"{group}{again}")
            answers = [replace(a, name=a.name + again) for a in _run_group(group, names)]
            yield from answers
            if all(a.ending is Ending.SKIPPED for a in answers):
                break


def _run_group(group: str, names: Sequence[str]) -> Iterator[Answer]:
    """All computations of a group in one process; when one takes the process down, the rest go on in the next."""
    left = list(names)
    while left:
        command = [sys.executable, "-m", "rocsolid.probe.active_programs", *left]
        reply = run_with_deadline(
            Command(name=group, command=command, deadline_s=_DEADLINES_S[group], env=dict(os.environ))
        )
        done = [line for line in map(_line, reply.stdout.splitlines()) if line]
        for line in done:
            yield line
            left.remove(line.name)
        if reply.check.ending is not Ending.ANSWERED and left:
            # What had begun and not ended is what took the process down.
            yield replace(reply.check, name=left.pop(0))
        elif reply.check.ending is Ending.ANSWERED:
            left.clear()


def _line(text: str) -> Answer | None:
    """A result the child printed; libraries print too, so anything else is passed over."""
    try:
        data = json.loads(text)
        return Answer(
            name=data["rocsolid"],
            ending=Ending(data["ending"]),
            detail=data["detail"],
            seconds=data["seconds"],
            facts=data["facts"],
        )
    except (ValueError, KeyError, TypeError):
        return None
