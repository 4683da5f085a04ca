"""Builds the C scanner once, if the machine has a C compiler. Without a compiler, traces are read in Python."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocsolid.measure import user_cache
from rocsolid.model.log import log as _log

_SOURCES: Final = Path(__file__).with_name("scan")
_VARIABLE: Final = "ROCSOLID_NATIVE"
# Building takes 0.7 s. Reading this much text without the scanner takes 0.4 to 1 s longer.
_MIN_TEXT_BYTES: Final = 128 << 20
_GZIP_RATIO: Final = 12  # estimated bytes of text per byte of gzip
_BUILD_TIMEOUT_S: Final = 60.0


class Array(ctypes.Structure):
    """An array that the scanner owns: its address and its length."""

    _fields_ = (("address", ctypes.c_void_p), ("count", ctypes.c_size_t))


def build_if_worthwhile(files: Iterable[Path]) -> None:
    """Build the library, unless it exists or these files are too small for it to save time."""
    file = library_file()
    with suppress(OSError):  # a folder or a file without permission
        if file is not None and not file.exists() and sum(map(_text_bytes, files)) >= _MIN_TEXT_BYTES:
            build(file)


def _text_bytes(file: Path) -> int:
    return file.stat().st_size * (_GZIP_RATIO if file.suffix == ".gz" else 1) if file.is_file() else 0


def build(file: Path) -> bool:
    """Compile the library into this file. A failure is only logged, because traces can also be read in Python."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        _log.debug("reading traces in Python only: no C compiler found")
        return False
    try:
        with tempfile.TemporaryDirectory() as folder:
            built = Path(folder) / "scan.so"
            subprocess.run(  # noqa: S603 - our own source
                [compiler, "-O3", "-shared", "-fPIC", str(_SOURCES / "scan.c"), "-o", str(built)],
                capture_output=True,
                check=True,
                timeout=_BUILD_TIMEOUT_S,
            )
            return user_cache.write_bytes(file, built.read_bytes(), mode=0o700)
    except (OSError, subprocess.SubprocessError) as failed:
        _log.debug("reading traces in Python only: %s", failed)
        return False


@functools.cache
def c_library() -> ctypes.CDLL | None:
    """Return the library if it is built and cannot have been written by another user; otherwise None."""
    file = library_file()
    with suppress(OSError):
        return load_library(file) if file and file.exists() else None
    return None


def load_library(file: Path) -> ctypes.CDLL | None:
    """Load a library and declare its functions."""
    try:
        return _declare(user_cache.load_library(file))
    except user_cache.UntrustedError as untrusted:
        _log.warning("reading traces in Python only, which is slower: %s", untrusted.strerror)
        return None
    except (OSError, AttributeError) as failed:
        _log.debug("reading traces in Python only: %s", failed)
        return None


def library_file() -> Path | None:
    """Return where the library is cached, for this source and machine type; None when it is disabled or has no folder."""
    if os.environ.get(_VARIABLE) == "0":
        return None
    sources = b"".join(file.read_bytes() for file in sorted(_SOURCES.iterdir()))
    tag = hashlib.sha256(sources + f"{sys.platform} {os.uname().machine}".encode()).hexdigest()[:16]
    return user_cache.cache_folder("native") / f"scan-{tag}.so"


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    scanner, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    text = ctypes.c_char_p
    for name, result, arguments in (
        ("scanner_new", scanner, ()),
        ("scanner_free", None, (scanner,)),
        ("scanner_add_category", number, (scanner, text, number, number)),
        ("scanner_is_ascii", number, (text, size)),
        ("scanner_read", number, (scanner, text, size, size)),
        ("scanner_undo", None, (scanner,)),
        ("scanner_clear", None, (scanner,)),
        ("scanner_rows", Array, (scanner, number)),
        ("scanner_characters", Array, (scanner, number)),
        ("scanner_string_ends", Array, (scanner, number)),
        ("scanner_categories", Array, (scanner,)),
        ("scanner_phases", Array, (scanner,)),
        ("scanner_unread_events", Array, (scanner,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
