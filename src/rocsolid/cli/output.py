"""What several commands use: the options `--output` and `--out`, the argument WORKLOAD, reading and writing files."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rocsolid.errors import InputError


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
        sys.stdout.write(text)
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_symlink() or (out.exists() and not out.is_file()):
            # Do not replace links, pipes and devices: a file instead of /dev/null would break other programs.
            out.write_text(text, encoding="utf-8")
        else:
            temporary = out.with_name(f".{out.name}.part")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(out)
    except OSError as error:
        msg = f"cannot write {out}: {error.strerror}"
        raise InputError(msg) from error
    sys.stderr.write(f"wrote {out}\n")


def require_writable(out: Path) -> None:
    """Raise InputError if the file cannot be written. Called before a long job that writes its result to the file."""
    folder = next(parent for parent in (out.parent, *out.parent.parents) if parent.exists())
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


def read(file: Path) -> str:
    """Return a file's text; raises InputError with the reason when it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        msg = f"{file} is not a text file"
        raise InputError(msg) from error
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise InputError(msg) from error
