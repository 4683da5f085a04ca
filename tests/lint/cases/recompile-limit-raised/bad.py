import torch

torch._dynamo.config.cache_size_limit = 64
torch._dynamo.config.accumulated_recompile_limit = 1024
