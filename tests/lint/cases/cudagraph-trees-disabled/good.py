import torch

torch._inductor.config.triton.cudagraph_trees = wanted
model = torch.compile(model, options={"triton.cudagraphs": False})
