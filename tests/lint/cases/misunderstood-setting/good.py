import torch._inductor.config as config

config.benchmark_kernel = wanted
config.max_autotune_gemm_backends = "ATEN,CK"
