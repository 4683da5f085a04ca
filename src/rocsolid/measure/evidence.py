"""Records of what was measured: every one says what, with which command, when and on what."""

import datetime as dt
import json
import os
import platform
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = "rocsolid/evidence/1"


def evidence(*, what: str, command: str, **found: Any) -> dict[str, Any]:  # noqa: ANN401 - what was found is the caller's
    """A record of today and of this machine, unless `date` or `device` say otherwise."""
    where = {} if "device" in found else here()
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    return {"schema": SCHEMA, "what": what, "command": command, "date": today, **where, **found}


def here() -> dict[str, str]:
    """The device, torch and Python at work."""
    import torch

    gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if gpu else f"no GPU; {os.cpu_count()} cores, {platform.machine()}"
    return {"device": device, "torch": torch.__version__, "python": platform.python_version()}


def write(record: dict[str, Any], file: Path) -> None:
    """As it is kept in evidence/: a line for each value, words as they are."""
    file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
