"""Trials that do not need torch, for tests of everything around a trial."""

import os
import time
from pathlib import Path
from typing import Any

from rocsolid.tune.isolate.trial_process import Reporter

FUSION = "TRITON_DEFAULT_FP_FUSION"


def measure(reporter: Reporter, **params: Any) -> dict[str, Any]:
    """Report 10 ms minus the variant's number; append a line to a file, so that every attempt can be counted."""
    reporter.phase("measure")
    number = int(os.environ.get(FUSION, "0"))
    with Path(params["workload"]).open("a", encoding="utf-8") as attempts:
        attempts.write(f"{number} {os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}\n")
    time.sleep(0.4)
    ms = 10.0 - number
    if params["on_request"]:
        reporter.serve(lambda _: ms + time.perf_counter() % 1e-3)
    machine = {"device": "CPU", "arch": "x86_64", "torch": "2.13.0", "python": "3.12"}
    return {
        "samples_ms": [ms] * 8,
        "clock": "host",
        "setup_s": 0.1,
        "peak_bytes": 0,
        "checked": "nothing",
        "relative_error": 0.0,
        **machine,
    }
