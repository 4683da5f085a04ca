import torch._inductor.config as config

config.max_autotune = False
config.max_autotune_gemm_backends = "ATEN"
config.epilogue_fusion = True
config.triton.multi_kernel = 1
