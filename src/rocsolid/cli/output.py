"""What the commands share: where output goes, and in which form."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rocsolid.errors import InputError


def add_output(parser: argparse.ArgumentParser, forms: Sequence[str]) -> None:
    """`--output FORM` and `--out FILE`."""
    parser.add_argument("--output", choices=forms, default=forms[0], help=f"form of the output (default: {forms[0]})")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to a file instead of the terminal")


def write(text: str, out: Path | None) -> None:
    """To the file, whole or not at all; or to the terminal."""
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_name(f".{out.name}.part")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(out)
    except OSError as refused:
        msg = f"cannot write {out}: {refused.strerror}"
        raise InputError(msg) from refused
    sys.stderr.write(f"wrote {out}\n")


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
