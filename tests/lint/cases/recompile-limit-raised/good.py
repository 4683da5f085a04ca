import torch

torch._dynamo.config.recompile_limit = 4
torch._dynamo.config.accumulated_recompile_limit = limit
