import os

import torch

os.environ["HIP_LAUNCH_BLOCKING"] = "0"
if torch.version.hip is None:
    torch._inductor.config.max_autotune = True
