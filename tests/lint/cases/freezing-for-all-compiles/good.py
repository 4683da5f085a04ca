import torch

with torch._inductor.config.patch(freezing=True):
    model = torch.compile(model)
torch._inductor.config.freezing = wanted
