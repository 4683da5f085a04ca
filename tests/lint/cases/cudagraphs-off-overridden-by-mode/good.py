import torch

torch._inductor.config.triton.cudagraphs = wanted
model = torch.compile(model, options={"triton.cudagraphs": False})
