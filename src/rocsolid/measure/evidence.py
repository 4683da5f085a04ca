"""Evidence records: what was measured, with which command, when and on which hardware and versions."""

import datetime as dt
import json
import os
import platform
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = "rocsolid/evidence/1"


def evidence(*, what: str, command: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - results have any shape
    """Return a new record; today's date and this machine are filled in unless `date` or `device` is given."""
    machine = {} if "device" in fields else this_machine()
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    return {"schema": SCHEMA, "what": what, "command": command, "date": today, **machine, **fields}


def this_machine() -> dict[str, str]:
    """Return device, torch version and Python version of this process."""
    import torch

    gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if gpu else f"no GPU; {os.cpu_count()} cores, {platform.machine()}"
    return {"device": device, "torch": torch.__version__, "python": platform.python_version()}


def write(record: dict[str, Any], file: Path) -> None:
    """Write a record as files in evidence/ are stored: indented JSON, one value per line, no ASCII escapes."""
    file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
