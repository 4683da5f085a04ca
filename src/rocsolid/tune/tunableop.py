"""TunableOp's results: each variant has its own results file, and the winner's goes into its plan."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocsolid.catalog import tunableop
from rocsolid.model.plan import Plan
from rocsolid.model.setting import Channel

_MAX_BYTES: Final = 1 << 20  # larger results would make the plan unreadable for people


def with_results_file(variables: Mapping[str, str], folder: Path, plan: Plan) -> dict[str, str]:
    """The variables, plus a results file if the variant uses TunableOp and names none: two variants must not share one."""
    if variables.get(tunableop.ENABLED) != "1" or tunableop.FILENAME in variables:
        return dict(variables)
    file = _file(folder, plan)
    file.parent.mkdir(parents=True, exist_ok=True)
    return {**variables, tunableop.FILENAME: str(file)}


def read_results(folder: Path, plan: Plan) -> str:
    """The results that TunableOp wrote for a variant; empty if it wrote none."""
    file = _file(folder, plan)
    for found in sorted(file.parent.glob(f"{file.stem}*{file.suffix}")):  # TunableOp adds the device number to the name
        text = found.read_text(encoding="utf-8", errors="replace")
        if text.strip() and len(text) <= _MAX_BYTES:
            return text
    return ""


def _file(folder: Path, plan: Plan) -> Path:
    variables = sorted((d.id, str(d.value)) for d in plan if d.channel is Channel.PROCESS)
    name = hashlib.sha256(repr(variables).encode()).hexdigest()[:12]
    return folder / "tunableop" / name / "results.csv"
