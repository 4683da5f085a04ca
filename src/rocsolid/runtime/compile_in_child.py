"""Compiles or captures a function once in a child process, so that a hang or crash in native code does not affect the program.

A compile also fills torch's caches on disk, so that compiling the same function in the program afterwards takes much less time.
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
from rocsolid.new_torch import check_new_torch
from rocsolid.process.parent_death import die_with_parent

RunCommand = Callable[[Sequence[str], float], CheckResult]  # runs a command with a deadline
_LOW_PRIORITY: Final = 10  # of -20 to 19; a tenth of the share of 0
_CANNOT_SEND: Final = "the function cannot be sent to a child process"


@contextmanager
def saved_call(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], task: Mapping[str, Any]) -> Iterator[Path]:
    """Write the call to a temporary file and yield its path; raises TypeError or PicklingError for objects that cannot be pickled."""
    import torch

    with tempfile.TemporaryDirectory(prefix="rocsolid-") as folder:
        file = Path(folder) / "call.pt"
        document = {
            "model": model,
            "args": tuple(args),
            "kwargs": dict(kwargs),
            "grad": torch.is_grad_enabled(),
            **task,
        }
        torch.save(document, file)
        yield file


def try_in_child(
    run_command: RunCommand,
    deadline_s: float,
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    task: Mapping[str, Any],
) -> CheckResult:
    """Compile or capture the call once in a child process and return the result; the status is SKIPPED if the call cannot be pickled.

    `task` is `{"compile": arguments of torch.compile}` or `{"capture": capture options}`. With `"background": True` the child process has
    a low priority. `"more_calls"` are further arguments for which the compiled function is called.
    """
    try:
        with saved_call(model, args, kwargs, task) as file:
            low = [str(_LOW_PRIORITY)] if task.get("background") else []
            result = run_command(
                [sys.executable, "-m", "rocsolid.runtime.compile_in_child", str(file), *low], deadline_s
            )
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        return CheckResult(name="in a child process", status=CheckStatus.SKIPPED, detail=f"{_CANNOT_SEND}: {error}")
    not_loaded = result.status is CheckStatus.FAILED and result.detail.startswith(_CANNOT_SEND)
    return replace(result, status=CheckStatus.SKIPPED) if not_loaded else result


def main(file: str) -> None:
    """In the child process: load the call, compile or capture it, and run it."""
    import torch

    try:
        # Safe to unpickle: the parent process wrote it in a folder that only this user can access.
        document: dict[str, Any] = torch.load(file, weights_only=False)
    except (
        AttributeError,
        ImportError,
    ) as error:  # for example for a class that the user's main script defines: that script is not run here
        sys.exit(f"{_CANNOT_SEND}: {error}")
    with torch.set_grad_enabled(document["grad"]):
        if "capture" in document:
            from rocsolid.runtime.capture.captured import Captured

            captured = Captured(document["model"], document["capture"], document["precautions"])
            for _ in range(2):
                captured(*document["args"], **document["kwargs"])
        else:
            compiled = torch.compile(document["model"], **document["compile"])
            for args, kwargs in [(document["args"], document["kwargs"]), *document.get("more_calls", ())]:
                compiled(*args, **kwargs)


if __name__ == "__main__":
    die_with_parent(os.getppid())
    check_new_torch(warn=False)
    if sys.argv[2:]:
        os.nice(int(sys.argv[2]))
    main(sys.argv[1])
