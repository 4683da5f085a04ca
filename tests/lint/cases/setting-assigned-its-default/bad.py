import torch

torch._inductor.config.shape_padding = True
torch._dynamo.config.suppress_errors = False
