"""What the commands share: where output goes, and in which form."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rocsolid.errors import InputError


def add_output(parser: argparse.ArgumentParser, forms: Sequence[str]) -> None:
    """`--output FORM` and `--out FILE`."""
    parser.add_argument("--output", choices=forms, default=forms[0], help=f"form of the output (default: {forms[0]})")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead of the terminal")


def add_workload(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """`WORKLOAD`, the same for every command that runs one."""
    parser.add_argument(
        "workload",
        nargs="?" if optional else None,
        metavar="WORKLOAD",
        help="file.py:function that returns (callable, args, kwargs)",
    )


def write(text: str, out: Path | None) -> None:
    """To the file, whole or not at all; or to the terminal."""
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_symlink() or (out.exists() and not out.is_file()):
            # Written to where it lies: a file put in the place of /dev/null would be the end of it for all programs.
            out.write_text(text, encoding="utf-8")
        else:
            temporary = out.with_name(f".{out.name}.part")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(out)
    except OSError as refused:
        msg = f"cannot write {out}: {refused.strerror}"
        raise InputError(msg) from refused
    sys.stderr.write(f"wrote {out}\n")


def writable(out: Path) -> None:
    """Raises InputError for a file that could not be written, before the work whose result it is to hold."""
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
    """A file's text, or an InputError that says why not."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as broken:
        msg = f"{file} is not a text file"
        raise InputError(msg) from broken
    except OSError as refused:
        msg = f"cannot read {file}: {refused.strerror}"
        raise InputError(msg) from refused
