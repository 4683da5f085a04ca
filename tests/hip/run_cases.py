"""Runs case after case, in as many processes as needed."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Start = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def run_cases(start: Start, cases: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The result of each case. A case that killed its process or hung is reported as such, and the rest run in a new process."""
    left = list(cases)
    while left:
        try:
            done = start(left)
            printed, end = done.stdout, {"died": done.returncode, "said": done.stderr[-400:]}
        except subprocess.TimeoutExpired as late:
            printed, end = _text(late.stdout), {"hung": late.timeout, "said": _text(late.stderr)[-400:]}
        seen = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        yield from seen
        left = left[len(seen) :]
        # A process that exits normally before the last case left a stream capturing, and has printed at least one result.
        if left and (end.get("died") != 0 or not seen):
            yield {"case": left.pop(0), **end}


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
