import torch

torch._inductor.config.max_fusion_size = 128
