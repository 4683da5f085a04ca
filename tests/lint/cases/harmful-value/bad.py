import os

import torch

os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
os.environ["HIP_LAUNCH_BLOCKING"] = "1"
model = torch.compile(model, options={"max_autotune": True})
