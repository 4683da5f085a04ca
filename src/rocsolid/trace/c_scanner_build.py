"""The scanner in C: built once by the machine's own compiler, and done without where there is none."""

import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocsolid.measure import user_cache

_log = logging.getLogger("rocsolid")
_SOURCES: Final = Path(__file__).with_name("scan")
_OFF: Final = "ROCSOLID_NATIVE"
# Building takes 0.7 s, and reading this much text without it 0.4 to 1 s longer.
_WORTH_IT: Final = 128 << 20
_PACKED: Final = 12  # bytes of text in one of a gzip file, about
_PATIENCE_S: Final = 60.0


class Part(ctypes.Structure):
    """Where something lies that the scanner holds, and how much of it."""

    _fields_ = (("at", ctypes.c_void_p), ("count", ctypes.c_size_t))


def build_for(files: Iterable[Path]) -> None:
    """Build the library where these files are long enough for it to pay and it is not there yet."""
    file = kept()
    with suppress(OSError):  # a folder or a file that we may not look into
        if file is not None and not file.exists() and sum(map(_text_bytes, files)) >= _WORTH_IT:
            build(file)


def _text_bytes(file: Path) -> int:
    return file.stat().st_size * (_PACKED if file.suffix == ".gz" else 1) if file.is_file() else 0


def build(file: Path) -> bool:
    """Compile it into this file; what keeps us from it is no matter for the user."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        _log.debug("traces are read in Python alone: there is no C compiler")
        return False
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        subprocess.run(  # noqa: S603 - our own source
            [compiler, "-O3", "-shared", "-fPIC", str(_SOURCES / "scan.c"), "-o", str(draft)],
            capture_output=True,
            check=True,
            timeout=_PATIENCE_S,
        )
        draft.chmod(0o700)
        draft.replace(file)
    except (OSError, subprocess.SubprocessError) as failed:
        _log.debug("traces are read in Python alone: %s", failed)
        with suppress(OSError):
            draft.unlink()
        return False
    return True


@functools.cache
def library() -> ctypes.CDLL | None:
    """The library, where it was built and nobody else can have written it."""
    file = kept()
    with suppress(OSError):
        return load(file) if file and file.exists() else None
    return None


def load(file: Path) -> ctypes.CDLL | None:
    """One that was built, with the types of its functions."""
    if why := user_cache.untrusted_reason(file):
        _log.warning("traces are read in Python alone, and more slowly: %s", why)
        return None
    try:
        return _declared(ctypes.CDLL(str(file)))
    except (OSError, AttributeError) as failed:
        _log.debug("traces are read in Python alone: %s", failed)
        return None


def kept() -> Path | None:
    """Where it is kept: another source or another kind of machine has another file. None: nowhere, it is not wanted."""
    if os.environ.get(_OFF) == "0":
        return None
    sources = b"".join(file.read_bytes() for file in sorted(_SOURCES.iterdir()))
    tag = hashlib.sha256(sources + f"{sys.platform} {os.uname().machine}".encode()).hexdigest()[:16]
    with suppress(RuntimeError):  # a user without a home
        return user_cache.cache_folder("native") / f"scan-{tag}.so"
    return None


def _declared(found: ctypes.CDLL) -> ctypes.CDLL:
    scanner, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    text = ctypes.c_char_p
    for name, result, arguments in (
        ("scanner_new", scanner, ()),
        ("scanner_free", None, (scanner,)),
        ("scanner_know", number, (scanner, text, number, number)),
        ("scanner_is_ascii", number, (text, size)),
        ("scanner_read", number, (scanner, text, size, size)),
        ("scanner_undo", None, (scanner,)),
        ("scanner_clear", None, (scanner,)),
        ("scanner_rows", Part, (scanner, number)),
        ("scanner_letters", Part, (scanner, number)),
        ("scanner_ends", Part, (scanner, number)),
        ("scanner_categories", Part, (scanner,)),
        ("scanner_phases", Part, (scanner,)),
        ("scanner_others", Part, (scanner,)),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found
