import os

os.environ["TORCH_LOGS"] = "graph_breaks"

import torch

os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "0"  # the compiler is not imported yet


def child_environment():
    os.environ["TORCH_LOGS"] = "recompiles"
