import torch._inductor.config as config

config.max_autotune = chosen
