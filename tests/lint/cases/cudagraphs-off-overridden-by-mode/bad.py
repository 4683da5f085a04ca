import torch

torch._inductor.config.triton.cudagraphs = False
