"""Starts a program under protection. Imports very little, because every start pays for it."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_STARTUP = Path(__file__).with_name("startup")
_HOME = Path(__file__).parents[3]


def launch(target: Sequence[str], **settings: str) -> NoReturn:
    """Replace this process by the program: same process id, same signals, same exit code.

    Args:
        target: the script, `-m module` or `-c code`, and its arguments.
        settings: profile, plan, deadline, report, anywhere, pretend, as text.

    """
    words = [sys.executable, *target]
    os.execve(words[0], words, launch_environment(os.environ, **settings))  # noqa: S606 - that is what a launcher does


def launch_environment(environ: Mapping[str, str], **settings: str) -> dict[str, str]:
    """The environment in which every Python process runs our `sitecustomize`; `settings` become ROCSOLID_RUN_* variables."""
    path = [str(_STARTUP), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    given = {f"ROCSOLID_RUN_{name.upper()}": value for name, value in settings.items() if value}
    return {**environ, **given, "ROCSOLID_RUN_HOME": str(_HOME), "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
