"""What happens when something unexpected does: a report in a file, and one line that names it."""

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

DEBUG: Final = "ROCSOLID_DEBUG"  # set, the error is raised as Python raises it


def tell(error: BaseException, argv: Sequence[str]) -> str:
    """Write the report and return the line for the user; never raises, for there is nobody to catch it."""
    from rocsolid.errors import first_line

    said = f"unexpected {type(error).__name__}: {first_line(error)}"
    try:
        file = _write(_report(error, argv))
    except Exception as second:  # noqa: BLE001 - a full disk must not hide the first error
        return f"{said}; its report could not be written ({first_line(second)}), {DEBUG}=1 shows the traceback"
    return f"{said}; this is a mistake in rocsolid: please report it with {file} (rocsolid doctor says what else)"


def _report(error: BaseException, argv: Sequence[str]) -> str:
    from rocsolid.report.doctor import masked_text
    from rocsolid.version import __version__

    try:
        from rocsolid.cli.doctor import summary

        around = summary()
    except Exception as second:  # noqa: BLE001 - what broke may be the probe itself
        around = f"rocsolid   {__version__}\npython     {sys.version}\nno more could be read: {second!r}\n"
    trace = "".join(traceback.format_exception(error))
    return f"$ rocsolid {masked_text(' '.join(argv))}\n\n{masked_text(trace)}\n{around}"


def _write(text: str) -> Path:
    from rocsolid.cli.doctor import crash_folder

    home = crash_folder()
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        home = Path(tempfile.mkdtemp(prefix="rocsolid-crash-"))
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    handle, name = tempfile.mkstemp(prefix=f"crash-{stamp}-", suffix=".txt", dir=home)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    return Path(name)
