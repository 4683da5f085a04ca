"""What several commands use: the options `--output` and `--out`, the argument WORKLOAD, reading and writing files."""

import argparse
import os
import re
import stat
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.codec import read_text

_PLAIN: Final = re.compile(r"[ -~\n\t]*")
# Controls, line and paragraph separators, marks that change the direction of text; `\r\n` ends a line.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
_COLOUR: Final = re.compile(r"(\033\[[0-9;]{0,8}m)")


def add_output(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """Add `--output FORMAT` and `--out FILE`; the first format is the default."""
    parser.add_argument("--output", choices=formats, default=formats[0], help=f"output format (default: {formats[0]})")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead of the terminal")


def add_workload(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the argument `WORKLOAD`."""
    parser.add_argument(
        "workload",
        nargs="?" if optional else None,
        metavar="WORKLOAD",
        help="file.py:function that returns (callable, args, kwargs)",
    )


def check_workload(name: str) -> None:
    """Raise InputError or UsageError for a wrong name, before torch is imported, which takes seconds."""
    from rocsolid.model.workload import WorkloadName

    file = WorkloadName.parse(name).file
    if not file.is_file():
        reason = "is a folder" if file.is_dir() else "does not exist"
        msg = f"the workload file {file} {reason}"
        raise InputError(msg)


def write(text: str, out: Path | None) -> None:
    """Write to the file, completely or not at all; without a file, to stdout."""
    if out is None:
        sys.stdout.write(_for_terminal(text))
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_file(out, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        msg = f"cannot write {out}: {error.strerror}"
        raise InputError(msg) from error
    note(f"wrote {out}")


def write_file(file: Path, data: bytes) -> None:
    """Write a file completely or not at all; it keeps its permissions. Raises OSError."""
    if file.exists() and not file.is_file():
        # Do not replace pipes and devices: a file instead of /dev/null would break other programs.
        file.write_bytes(data)
        return
    target = file.resolve()  # a link stays a link
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
            os.fchmod(handle, _mode(target))
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise


def _mode(file: Path) -> int:
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _for_terminal(text: str) -> str:
    """Escape control characters, except for rocsolid's own colours: a name from elsewhere must not control the terminal."""
    from rocsolid.report.terminal import terminal_of

    if not terminal_of().colour:
        return printable(text)
    return "".join(part if _COLOUR.fullmatch(part) else printable(part) for part in _COLOUR.split(text))


def require_writable(out: Path) -> None:
    """Raise InputError if the file cannot be written. Called before a long job that writes its result to the file."""
    folder = next(parent for parent in (out.parent, *out.parent.parents) if os.path.exists(parent))  # noqa: PTH110
    reason = ""
    if out.is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = f"{folder} is a file"
    elif not os.access(out if out.exists() else folder, os.W_OK):
        reason = "permission denied"
    if reason:
        msg = f"cannot write {out}: {reason}"
        raise InputError(msg)


def announce_plan(file: str | Path) -> None:
    """Check a plan file, and print what it sets before anything uses it; raises InputError or PlanError."""
    from rocsolid.catalog.plan_check import check_plan
    from rocsolid.model.plan import Plan

    plan = check_plan(Plan.load(file), str(file))
    lines = [f"  {d.id} = {'(not set)' if d.value is None else repr(d.value)}" for d in plan] or ["  nothing"]
    note("\n".join([f"rocsolid: the plan {file} sets:", *lines]))


def printable(text: str) -> str:
    """Return the text with control characters shown as escapes; a name from elsewhere must not control the terminal."""
    return text if _PLAIN.fullmatch(text) else _CONTROL.sub(lambda c: c[0].encode("unicode_escape").decode(), text)


def note(text: str) -> None:
    """Print a line to stderr, with secrets hidden and control characters as escapes; wrapped on a terminal."""
    from rocsolid.model.redact import redact
    from rocsolid.report.terminal import terminal_of

    shown = printable(redact(text))
    if sys.stderr.isatty() and "\n" not in shown:
        shown = terminal_of(sys.stderr).wrap(shown, indent="  ", first="")
    sys.stderr.write(f"{shown}\n")


def read(file: Path) -> str:
    """Return a file's text; raises InputError with the reason when it cannot be read."""
    return read_text(file)
