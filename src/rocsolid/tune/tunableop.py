"""TunableOp's results: each variant has its own results file; that of the winner is stored in its plan."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocsolid.catalog import tunableop
from rocsolid.model.plan import Plan
from rocsolid.model.setting import Channel

_MAX_BYTES: Final = 1 << 20  # larger results are not stored: they would make the plan unreadable for people


def with_results_file(variables: Mapping[str, str], folder: Path, plan: Plan) -> dict[str, str]:
    """Return the variables; if they enable TunableOp and do not set its results file, with a results file for this variant.

    Two variants must not share a results file.
    """
    if variables.get(tunableop.ENABLED) != "1" or tunableop.FILENAME in variables:
        return dict(variables)
    file = _results_file(folder, plan)
    file.parent.mkdir(parents=True, exist_ok=True)
    return {**variables, tunableop.FILENAME: str(file)}


def read_results(folder: Path, plan: Plan) -> str:
    """Return the results that TunableOp wrote for a variant; empty if it wrote none."""
    file = _results_file(folder, plan)
    for results_file in sorted(
        file.parent.glob(f"{file.stem}*{file.suffix}")
    ):  # TunableOp adds the device number to the name
        text = results_file.read_text(encoding="utf-8", errors="replace")
        if text.strip() and len(text) <= _MAX_BYTES:
            return text
    return ""


def _results_file(folder: Path, plan: Plan) -> Path:
    variables = sorted((d.id, str(d.value)) for d in plan if d.channel is Channel.PROCESS)
    name = hashlib.sha256(repr(variables).encode()).hexdigest()[:12]
    return folder / "tunableop" / name / "results.csv"
