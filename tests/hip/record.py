"""Measure every row of the table with both runtimes, and write the evidence record.

python -m tests.hip.record [evidence/capture-rules-on-hip.json]
"""

import sys
from pathlib import Path
from typing import Any

from tests.hip.rig import LIBRARIES, MODES, Rig, make
from tests.support import ROOT

from rocsolid.catalog.capture_rules import CAPTURE_RULES
from rocsolid.measure.evidence import evidence, write

FOLDER = ROOT / ".rocsolid/hip-rig"
RECORD = ROOT / "evidence/capture-rules-on-hip.json"


def measure_all(rig: Rig) -> dict[str, dict[str, dict[str, Any]]]:
    """The results by runtime, mode and case."""
    cases = [rule.id for rule in CAPTURE_RULES]
    return {
        runtime: {mode: {seen.pop("case"): seen for seen in rig.measure(runtime, mode, cases)} for mode in MODES}
        for runtime in LIBRARIES
    }


def record_of(rig: Rig) -> dict[str, Any]:
    """The record, with what it ran on and when."""
    return evidence(
        what="what HIP does with each call of the capture-rule table during a capture, in three modes",
        command="python -m tests.hip.record",
        device="none: the runtimes run on a model of a gfx942 that computes nothing (tests/hip/idle_gpu.c)",
        torch="none",
        packages=rig.versions,
        answers=measure_all(rig),
    )


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RECORD
    write(record_of(make(FOLDER)), target)
