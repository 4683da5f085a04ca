"""Compiles or captures a function once in a process of its own, so that a hang or a crash in native code costs nothing but time.

A compile fills the caches on disk; the program then compiles the same thing in a fraction of the time.
"""

import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rocsolid.model.environment import CheckResult, CheckStatus
from rocsolid.process.parent_death import end_with

Asker = Callable[[Sequence[str], float], CheckResult]  # runs a command against a deadline
_STUCK: Final = "the function cannot be sent to a child"


@contextmanager
def packed(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], what: Mapping[str, Any]) -> Iterator[Path]:
    """The call in a file another process can read; raises TypeError or PicklingError for what cannot travel."""
    import torch

    with tempfile.TemporaryDirectory(prefix="rocsolid-") as folder:
        file = Path(folder) / "call.pt"
        work = {
            "model": model,
            "args": tuple(args),
            "kwargs": dict(kwargs),
            "grad": torch.is_grad_enabled(),
            **what,
        }
        torch.save(work, file)
        yield file


def try_in_child(
    ask: Asker,
    deadline_s: float,
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    what: Mapping[str, Any],
) -> CheckResult:
    """Do it once in a child; says how that ended. What cannot travel to a child is skipped, and said.

    `what` is `{"compile": options of torch.compile}` or `{"capture": options of ours}`.
    """
    try:
        with packed(model, args, kwargs, what) as file:
            answer = ask([sys.executable, "-m", "rocsolid.runtime.compile_in_child", str(file)], deadline_s)
    except (TypeError, AttributeError, pickle.PicklingError) as stuck:
        return CheckResult(name="in a child", status=CheckStatus.SKIPPED, detail=f"{_STUCK}: {stuck}")
    unread = answer.status is CheckStatus.FAILED and answer.detail.startswith(_STUCK)
    return replace(answer, status=CheckStatus.SKIPPED) if unread else answer


def main(file: str) -> None:
    """In the child: load the call, compile or capture it, run it."""
    import torch

    try:
        # Our own file, written a moment ago in a folder only this user can read.
        work: dict[str, Any] = torch.load(file, weights_only=False)
    except (
        AttributeError,
        ImportError,
    ) as missing:  # such as what the user's own script defines: it is not run again here
        sys.exit(f"{_STUCK}: {missing}")
    with torch.set_grad_enabled(work["grad"]):
        if "capture" in work:
            from rocsolid.runtime.capture.captured import Captured
            from rocsolid.runtime.capture.choosing import backend_for

            captured = Captured(work["model"], work["capture"], backend_for)
            for _ in range(2):
                captured(*work["args"], **work["kwargs"])
        else:
            torch.compile(work["model"], **work["compile"])(*work["args"], **work["kwargs"])


if __name__ == "__main__":
    end_with(os.getppid())
    main(sys.argv[1])
