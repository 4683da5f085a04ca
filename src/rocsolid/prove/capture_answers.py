"""Runs the capture cases in as many processes as needed, and translates what a runtime did into the words of the capture-rule table."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rocsolid.model.capture_rule import Behavior, Outcome

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


def agrees(behavior: Behavior, seen: Mapping[str, Any]) -> bool:
    """Whether a cell agrees with what was measured. A missing node cannot be told from a call that never makes one."""
    given = seen.get("returned"), seen.get("state"), seen.get("ended")
    match behavior.outcome:
        case Outcome.RECORDED:
            return given == (0, "active", 0) and seen["nodes"] > 1  # one kernel is in every capture
        case Outcome.RUNS_NOW | Outcome.LEFT_OUT:
            return given in ((0, "active", 0), (0, "none", None)) and seen["nodes"] == 1
        case Outcome.CAPTURE_FAILS:
            # CUDA drops a capture that another thread tried to end, so it need not be ended.
            return given in ((behavior.error, "invalidated", 901), (behavior.error, "none", None))
        case Outcome.CALL_FAILS:
            return given == (behavior.error, "active", 0)
        case Outcome.FAILS_AT_END:
            return given == (0, "active", behavior.error)
        case Outcome.UNKNOWN:
            return True


def word(seen: Mapping[str, Any]) -> str:
    """The table's word for what was measured; `pass` is for both words of a call that left no node."""
    returned, state, ended = seen.get("returned"), seen.get("state"), seen.get("ended")
    match returned, state, ended:
        case 0, "active", 0:
            return "node" if seen.get("nodes", 1) > 1 else "pass"
        case 0, "none", None:
            return "pass" if seen.get("nodes") == 1 else "odd"
        case 0, "active", int():
            return f"end{ended}"
        case (int(), "invalidated", 901) | (int(), "none", None) if returned:
            return str(returned)
        case int(), "active", 0 if returned:
            return f"kept{returned}"
    return next((why for why in ("died", "hung") if why in seen), "odd")
