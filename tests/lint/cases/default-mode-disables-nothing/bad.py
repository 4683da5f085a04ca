import torch

if torch.version.hip:
    mode = "default"
else:
    mode = "reduce-overhead"
model = torch.compile(model, mode=mode)
