"""Ask both runtimes about every row of the table, and write the evidence record.

python -m tests.hip.record [evidence/capture-rules-on-hip.json]
"""

import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

from tests.hip.rig import LIBRARIES, MODES, Rig, make
from tests.support import ROOT

from rocsolid.catalog.capture_rules import CAPTURE_RULES

FOLDER = ROOT / ".rocsolid/hip-rig"
RECORD = ROOT / "evidence/capture-rules-on-hip.json"


def asked(rig: Rig) -> dict[str, dict[str, dict[str, Any]]]:
    """The answers by runtime, mode and case."""
    cases = [rule.case for rule in CAPTURE_RULES]
    return {
        runtime: {mode: {seen.pop("case"): seen for seen in rig.answers(runtime, mode, cases)} for mode in MODES}
        for runtime in LIBRARIES
    }


def record_of(rig: Rig) -> dict[str, Any]:
    """With what it ran on, and when."""
    return {
        "schema": "rocsolid/evidence/1",
        "what": "what HIP does with each call of the capture-rule table during a capture, in three modes",
        "command": "python -m tests.hip.record",
        "date": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "device": "none: the runtimes run on a model of a gfx942 that computes nothing (tests/hip/idle_gpu.c)",
        "torch": "none",
        "packages": rig.versions,
        "answers": asked(rig),
    }


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RECORD
    target.write_text(json.dumps(record_of(make(FOLDER)), indent=1) + "\n", encoding="utf-8")
