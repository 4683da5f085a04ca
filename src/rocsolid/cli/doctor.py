"""Print what to attach to a report of a bug: versions, platform, packages, variables. Nothing is sent anywhere.

Examples:
  rocsolid doctor                          to read, and to copy into a report
  rocsolid doctor --out doctor.txt         as a file
  rocsolid doctor --output json            for programs

Values that look like tokens or passwords are masked, and the home folder is written as ~; read it all the same before you
send it. After an unexpected error the report of that crash is listed too: attach it.

"""

import argparse

from rocsolid.cli.output import add_output, write

_ASK = """
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
    from rocsolid.api.probing import probe
    from rocsolid.cli.crash import reports
    from rocsolid.report.doctor import doctor_text
    from rocsolid.version import __version__

    return doctor_text(probe(), version=__version__, extras=_extras(), crashes=tuple(reports()))


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
