import torch
from torch._inductor import config

config.triton.cudagraph_tree = False
torch._dynamo.config.cache_size = 64
with config.patch({"max_autotunes": True}):
    pass
model = torch.compile(model, options={"epilogue_fusions": True})
