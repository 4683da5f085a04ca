"""Print what to attach to a bug report: versions, platform, packages, variables. Nothing is sent anywhere.

Examples:
  rocsolid doctor                          print the summary
  rocsolid doctor --out doctor.txt         write it to a file
  rocsolid doctor --output json            print it as JSON

Values that look like tokens or passwords are masked, and the home folder is written as ~. Please read the summary before
you send it. After an unexpected error, it lists the path of the crash report: attach that file too.

"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Final

from rocsolid.cli.output import add_output, write

_MAX_CRASHES_LISTED: Final = 5
_INSTRUCTIONS: Final = """
Attach this, the command you ran and its output, and the smallest workload that shows the problem.
If the machine itself may be the cause, also attach: rocsolid probe --active --output json --out probe.json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Probe without importing torch, and write the summary."""
    text = summary()
    if args.output == "json":
        from rocsolid.model.codec import dumps
        from rocsolid.version import __version__

        write(dumps("rocsolid/doctor/1", rocsolid=__version__, summary=text.splitlines()), args.out)
        return 0
    write(text + _INSTRUCTIONS, args.out)
    return 0


def summary() -> str:
    """The text for a bug report; the crash report contains it too."""
    from rocsolid.api.probe import probe
    from rocsolid.report.doctor import doctor_text
    from rocsolid.version import __version__

    return doctor_text(probe(), version=__version__, extras=_extras(), crashes=tuple(_crashes()))


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
