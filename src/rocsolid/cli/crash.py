"""Write a crash report for an unexpected error, and return the line that the user sees."""

import os
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

DEBUG_VARIABLE: Final = "ROCSOLID_DEBUG"  # when set, the error is raised with its traceback instead


def write_crash_report(error: BaseException, argv: Sequence[str]) -> str:
    """Write the report and return the line for the user. It never raises, because nothing would catch the error."""
    from rocsolid.errors import first_line

    message = f"unexpected {type(error).__name__}: {first_line(error)}"
    try:
        file = _write(_report(error, argv))
    except Exception as write_error:  # noqa: BLE001 - a full disk must not hide the first error
        return f"{message}; the crash report could not be written ({first_line(write_error)}); {DEBUG_VARIABLE}=1 shows the traceback"
    return f"{message}; this is a bug in rocsolid: please report it, with {file} and the output of `rocsolid doctor`"


def _report(error: BaseException, argv: Sequence[str]) -> str:
    from rocsolid.report.doctor import mask_text
    from rocsolid.version import __version__

    try:
        from rocsolid.cli.doctor import summary

        details = summary()
    except Exception as probe_error:  # noqa: BLE001 - the error may be in the probe itself
        details = f"rocsolid   {__version__}\npython     {sys.version}\nthe probe failed as well: {mask_text(repr(probe_error))}\n"
    trace = "".join(traceback.format_exception(error))
    return f"$ rocsolid {mask_text(' '.join(argv))}\n\n{mask_text(trace)}\n{details}"


def _write(text: str) -> Path:
    from rocsolid.cli.doctor import crash_folder
    from rocsolid.measure.user_cache import write_bytes

    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    file = crash_folder() / f"crash-{stamp}-{secrets.token_hex(4)}.txt"
    data = text.encode("utf-8", "backslashreplace")
    if write_bytes(file, data):
        return file
    handle, name = tempfile.mkstemp(prefix=f"rocsolid-{file.stem}-", suffix=".txt")  # the folder is not ours
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    return Path(name)
