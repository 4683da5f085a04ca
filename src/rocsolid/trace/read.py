"""Reads a profiler file of any supported format. The first bytes decide the format, not the file name."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from rocsolid.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from rocsolid.trace.columns import TraceColumns

_SUPPORTED_FORMATS = "torch.profiler traces (JSON, plain or gzip) and rocprofv3 JSON, CSV and .db files"


def require_extra() -> None:
    """Raise MissingExtraError when a package of the `trace` extra is not installed."""
    for package in ("numpy", "msgspec"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(feature="reading traces", extra="trace")


def read_trace(file: Path, *, single_process: bool = False) -> "TraceColumns":
    """Read a file into columns.

    Args:
        file: the trace.
        single_process: read the file in this process and thread only.

    Raises:
        InputError: the file is not a supported trace.

    """
    require_extra()
    from rocsolid.trace.columns import limit_columns

    return limit_columns(_read(file, single_process=single_process))


def _read(file: Path, *, single_process: bool) -> "TraceColumns":
    from rocsolid.trace.readers.bytestream import first_bytes
    from rocsolid.trace.readers.c_scanner_build import build_if_worthwhile
    from rocsolid.trace.readers.kineto import read_kineto
    from rocsolid.trace.readers.parallel import read_in_parallel

    if file.is_dir():
        msg = f"{file} is a folder; give a file in it, or add --ranks to read one trace per rank"
        raise InputError(msg)
    head = first_bytes(file).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"SQLite format 3"):
        from rocsolid.trace.readers.rocpd import read_rocpd

        return read_rocpd(file)
    if head.startswith((b"{", b"[")):
        from rocsolid.trace.readers.rocprof_json import TOOL_KEY, read_rocprof_json

        if TOOL_KEY in head[:4096]:
            return read_rocprof_json(file)
        build_if_worthwhile([file])
        return read_kineto(file, read_ahead=False) if single_process else read_in_parallel(file)
    from rocsolid.trace.readers.rocprof_csv import is_rocprof_csv, read_rocprof_csv

    if is_rocprof_csv(head):
        return read_rocprof_csv(file)
    raise InputError(_unsupported(file, head))


def _unsupported(file: Path, head: bytes) -> str:
    if not head:
        return f"{file} is empty"
    if head[:1] == b"<":
        return f"{file} is a web page, not a trace; was it downloaded from a link that requires a login?"
    if head.startswith(b"PK"):
        return f"{file} is a zip archive; unpack it first"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return f"{file} is compressed with zstd; decompress it first (zstd -d)"
    return f"{file} is not a supported trace. Supported: {_SUPPORTED_FORMATS}"
