"""Print what to attach to a bug report: versions, platform, packages, variables. Nothing is sent anywhere.

Examples:
  rocsolid doctor                          print the summary
  rocsolid doctor --out doctor.txt         write it to a file
  rocsolid doctor --output json            print it as JSON

It also calls every private torch name that rocsolid uses on something tiny, in a child process, and lists the features that work
less well on this torch. That takes 10 to 60 seconds.

Values that look like tokens or passwords are masked, and the home folder is written as ~. Please read the summary before
you send it. After an unexpected error, it lists the path of the crash report: attach that file too.

"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocsolid.cli.output import add_output, write

if TYPE_CHECKING:
    from rocsolid.report.terminal import Terminal

_MAX_CRASHES_LISTED: Final = 5
_INSTRUCTIONS: Final = """
Attach this, the command you ran and its output, and the smallest workload
that shows the problem. If the machine itself may be the cause, attach also:
  rocsolid probe --active --output json --out probe.json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Probe, in child processes where torch is needed, and write the summary."""
    from rocsolid.report.terminal import terminal_of

    to_terminal = args.out is None and args.output == "text"
    text = summary(probe_names=True, terminal=terminal_of() if to_terminal else None)
    if args.output == "json":
        from rocsolid.model.codec import dumps
        from rocsolid.version import __version__

        write(dumps("rocsolid/doctor/1", rocsolid=__version__, summary=text.splitlines()), args.out)
        return 0
    write(text + _INSTRUCTIONS, args.out)
    return 0


def summary(*, probe_names: bool = False, terminal: "Terminal | None" = None) -> str:
    """The text for a bug report; the crash report contains it too, without the probed names."""
    from rocsolid.api.probe import probe
    from rocsolid.new_torch import probe_private_names
    from rocsolid.report.doctor import doctor_text
    from rocsolid.version import __version__

    env = probe()
    names, problem = probe_private_names() if probe_names and env.torch else ((), "")
    return doctor_text(
        env,
        version=__version__,
        extras=_extras(),
        crashes=tuple(_crashes()),
        names=names,
        names_problem=problem,
        terminal=terminal,
    )


def _extras() -> dict[str, bool]:
    from importlib.util import find_spec

    package_of_extra = {
        "trace": "msgspec",
        "tune": "optuna",
        "fix": "libcst",
        "parquet": "pyarrow",
        "ray": "ray",
        "triton": "triton",
    }
    return {extra: find_spec(package) is not None for extra, package in package_of_extra.items()}


def crash_folder() -> Path:
    """The folder of this user's crash reports."""
    return Path(tempfile.gettempdir()) / f"rocsolid-crashes-{os.getuid()}"


def _crashes() -> list[Path]:
    """The latest crash reports, newest first; none if the folder belongs to another user."""
    try:
        if crash_folder().stat().st_uid != os.getuid():
            return []
        return sorted(crash_folder().glob("crash-*.txt"), reverse=True)[:_MAX_CRASHES_LISTED]
    except OSError:
        return []
