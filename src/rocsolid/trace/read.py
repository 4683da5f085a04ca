"""Any profiler file into columns: what it is, is seen from its first bytes, not from its name."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from rocsolid.trace.columns import Columns

_KNOWN = "traces of torch's profiler (JSON, plain or gzip) and rocprofv3's JSON, CSV and .db files"


def need_extra() -> None:
    """Say at once when the packages that reading needs are missing."""
    for package in ("numpy", "msgspec"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(feature="reading traces", extra="trace")


def read_trace(file: Path, *, alone: bool = False) -> "Columns":
    """The columns of a file; raises InputError for what is no trace that we know. `alone`: start no second process or thread."""
    need_extra()
    from rocsolid.trace.bytestream import first_bytes
    from rocsolid.trace.c_scanner_build import build_for
    from rocsolid.trace.kineto import read_kineto
    from rocsolid.trace.parallel import read_in_parallel

    if file.is_dir():
        msg = f"{file} is a folder; name a file in it, or ask for --ranks"
        raise InputError(msg)
    head = first_bytes(file).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"SQLite format 3"):
        from rocsolid.trace.rocpd import read_rocpd

        return read_rocpd(file)
    if head.startswith((b"{", b"[")):
        from rocsolid.trace.rocprof_json import TOOL, read_rocprof_json

        if TOOL in head[:4096]:
            return read_rocprof_json(file)
        build_for([file])
        return read_kineto(file, alone=True) if alone else read_in_parallel(file)
    from rocsolid.trace.rocprof_csv import is_rocprof_csv, read_rocprof_csv

    if is_rocprof_csv(head):
        return read_rocprof_csv(file)
    raise InputError(_foreign(file, head))


def _foreign(file: Path, head: bytes) -> str:
    if not head:
        return f"{file} is empty"
    if head[:1] == b"<":
        return f"{file} is a web page, not a trace; was it saved from a link that asks for a login?"
    if head.startswith(b"PK"):
        return f"{file} is a zip archive; unpack it first"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return f"{file} is packed with zstd; unpack it first"
    return f"{file} is no trace that we know; we read {_KNOWN}"
