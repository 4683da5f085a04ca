"""Import this before torchvision: its wheels on PyPI are for CUDA, and next to torch for the CPU their operators are not loaded.

It then declares operators for which it has none, and cannot be imported. None of the programs here calls these operators.
`make test` installs it in a folder of its own, where transformers does not find it.
"""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(sys.prefix) / "torchvision"))
DECLARED = []
try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
    for operator in ("nms", "qnms"):
        DECLARED[0].define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
