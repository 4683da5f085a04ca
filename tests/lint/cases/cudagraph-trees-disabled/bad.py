import torch

torch._inductor.config.triton.cudagraph_trees = False
model = torch.compile(model, options={"triton.cudagraph_trees": False})
