"""Print what to attach to a report of a bug: versions, platform, packages, variables. Nothing is sent anywhere.

Examples:
  rocsolid doctor                          to read, and to copy into a report
  rocsolid doctor --out doctor.txt         as a file
  rocsolid doctor --output json            for programs

Values that look like tokens or passwords are masked, and the home folder is written as ~; read it all the same before you
send it. After an unexpected error the report of that crash is listed too: attach it.

"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Final

from rocsolid.cli.output import add_output, write

_KEPT: Final = 5  # crash reports that are listed
_ASK: Final = """
Attach this, the command you ran, and what it printed. If a workload is involved, the smallest one that shows it.
Where the machine itself is in doubt: rocsolid probe --active --output json --out probe.json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_output(parser, ("text", "json"))


def run(args: argparse.Namespace) -> int:
    """Look, without importing torch, and write it down."""
    text = summary()
    if args.output == "json":
        from rocsolid.model.codec import dumps
        from rocsolid.version import __version__

        write(dumps("rocsolid/doctor/1", rocsolid=__version__, summary=text.splitlines()), args.out)
        return 0
    write(text + _ASK, args.out)
    return 0


def summary() -> str:
    """The page; used by the crash report as well."""
    from rocsolid.api.probe import probe
    from rocsolid.report.doctor import doctor_text
    from rocsolid.version import __version__

    return doctor_text(probe(), version=__version__, extras=_extras(), crashes=tuple(_crashes()))


def _extras() -> dict[str, bool]:
    from importlib.util import find_spec

    wanted = {
        "trace": "msgspec",
        "tune": "optuna",
        "fix": "libcst",
        "parquet": "pyarrow",
        "ray": "ray",
        "triton": "triton",
    }
    return {extra: find_spec(package) is not None for extra, package in wanted.items()}


def crash_folder() -> Path:
    """Of this user's reports."""
    return Path(tempfile.gettempdir()) / f"rocsolid-crashes-{os.getuid()}"


def _crashes() -> list[Path]:
    """The newest reports, newest first; only of a folder that is ours."""
    try:
        if crash_folder().stat().st_uid != os.getuid():
            return []
        return sorted(crash_folder().glob("crash-*.txt"), reverse=True)[:_KEPT]
    except OSError:
        return []
