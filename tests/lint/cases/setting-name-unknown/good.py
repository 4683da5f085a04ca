import torch
from torch._inductor import config

config.triton.cudagraph_skip_dynamic_graphs = True
if hasattr(config, "brand_new"):
    config.brand_new = True
model = torch.compile(model, options={"triton.cudagraphs": False})
other = torch.compile(model, backend="mine", options={"whatever": 1})


def local(config):
    config.hidden_size = 8
