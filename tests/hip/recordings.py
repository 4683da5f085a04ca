"""What real traces of AMD chips contain about the runtime and the chip. The traces belong to other projects and are not committed.

python -m tests.hip.recordings      # read them again, and write tests/hip/recordings.json
"""

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.trace.data import real

TRUTH = Path(__file__).with_name("recordings.json")
CAPTURE = "mi300x_vllm_decode_full_capture.json.gz"
REPLAYS = ("mi300x_vllm_decode_full_hipgraph.json.gz", "mi300x_sglang_decode_hipgraph.json.gz")
# The catalogue has figures of these chips.
CHIPS = {
    CAPTURE: "gfx942",
    **dict.fromkeys(REPLAYS, "gfx942"),
    "mi300x_torch_compile_rmsnorm.json.gz": "gfx942",
    "mi300x_resnet_train_checkpoint.json.gz": "gfx942",
    "mi210_gpu_only.json.gz": "gfx90a",
    "h100_bert-small.json.gz": "sm_90",
}
_FIGURES = ("computeMajor", "computeMinor", "warpSize", "numSms", "maxThreadsPerBlock", "sharedMemPerBlock")


def read(name: str) -> dict[str, Any]:
    """The chip's figures, the runtime version, and the calls inside and outside of a capture."""
    with gzip.open(real(name)) as file:
        trace = json.load(file)
    chip = trace["deviceProperties"][0]
    calls = [event for event in trace["traceEvents"] if event.get("cat") == "cuda_runtime"]
    begin, end = (next((e for e in calls if e["name"] == f"hipStream{what}Capture"), None) for what in ("Begin", "End"))
    inside = [e["name"] for e in calls if begin and end and begin["ts"] < e["ts"] < end["ts"]]
    outside = Counter(e["name"] for e in calls) - Counter(inside)
    return {
        "hip": trace.get("hip_runtime_version", 0),
        "chip": {figure: chip[figure] for figure in _FIGURES} | {"registers": chip["regsPerBlock"]},
        "inside": dict(sorted(Counter(inside).items())),
        "outside": dict(sorted(outside.items())) if inside else {},
        "replays": sum(e["name"] == "hipGraphLaunch" for e in calls),
    }


def stored() -> Mapping[str, dict[str, Any]]:
    """What was read from the traces earlier."""
    known: dict[str, dict[str, Any]] = json.loads(TRUTH.read_text(encoding="utf-8"))
    return known


if __name__ == "__main__":
    TRUTH.write_text(json.dumps({name: read(name) for name in CHIPS}, indent=1) + "\n", encoding="utf-8")
