import os

import torch

os.environ["TORCH_LOGS"] = "graph_breaks"

from torch._inductor import config

os.environ.setdefault("TORCHINDUCTOR_MAX_AUTOTUNE", "0")
