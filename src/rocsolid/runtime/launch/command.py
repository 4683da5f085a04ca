"""Starts a program with rocsolid's protection. Few modules are imported here, because they delay the start of every program."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_STARTUP_FOLDER = Path(__file__).with_name("startup")
_PACKAGE_FOLDER = Path(__file__).parents[3]  # the folder that contains the package `rocsolid`


def launch(target: Sequence[str], **options: str) -> NoReturn:
    """Replace this process by the program: same process id, same signals, same exit code.

    Args:
        target: the script, `-m module` or `-c code`, and its arguments.
        options: profile, plan, deadline, report, ignore_platform, best_effort, pretend, as text.

    """
    command = [sys.executable, *target]
    os.execve(command[0], command, launch_environment(os.environ, **options))  # noqa: S606 - the user's own program


def launch_environment(environ: Mapping[str, str], **options: str) -> dict[str, str]:
    """Return an environment in which every Python process runs our `sitecustomize`; `options` become ROCSOLID_RUN_* variables."""
    given = environ.get("PYTHONPATH", "")
    # An empty entry is the current folder. A variable that is empty as a whole is none.
    path = [str(_STARTUP_FOLDER), *(given.split(os.pathsep) if given else ())]
    variables = {f"ROCSOLID_RUN_{name.upper()}": value for name, value in options.items() if value}
    return {
        **environ,
        **variables,
        "ROCSOLID_RUN_PACKAGE_FOLDER": str(_PACKAGE_FOLDER),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
    }
