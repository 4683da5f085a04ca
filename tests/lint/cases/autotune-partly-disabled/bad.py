import torch._inductor.config as config

config.max_autotune = False
config.max_autotune_gemm = False
