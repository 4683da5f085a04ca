"""TunableOp's results: each variant has a file of its own, and the winner's goes into its plan."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocsolid.model.plan import Plan
from rocsolid.model.setting import Channel

_ENABLED: Final = "PYTORCH_TUNABLEOP_ENABLED"
_FILE: Final = "PYTORCH_TUNABLEOP_FILENAME"
_MOST_BYTES: Final = 1 << 20  # beyond this a plan is no file for a person any more


def with_own_file(variables: Mapping[str, str], folder: Path, plan: Plan) -> dict[str, str]:
    """The variables, with a results file where the variant has TunableOp and names none: two variants must not share one."""
    if variables.get(_ENABLED) != "1" or _FILE in variables:
        return dict(variables)
    file = _file(folder, plan)
    file.parent.mkdir(parents=True, exist_ok=True)
    return {**variables, _FILE: str(file)}


def results_of(folder: Path, plan: Plan) -> str:
    """What TunableOp found for a variant; nothing when it had no part in it. The device's number stands in the file's name."""
    file = _file(folder, plan)
    for found in sorted(file.parent.glob(f"{file.stem}*{file.suffix}")):
        text = found.read_text(encoding="utf-8", errors="replace")
        if text.strip() and len(text) <= _MOST_BYTES:
            return text
    return ""


def _file(folder: Path, plan: Plan) -> Path:
    variables = sorted((d.id, str(d.value)) for d in plan if d.channel is Channel.PROCESS)
    name = hashlib.sha256(repr(variables).encode()).hexdigest()[:12]
    return folder / "tunableop" / name / "results.csv"
