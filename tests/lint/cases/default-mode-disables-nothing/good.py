import torch

mode = "default" if debug else "reduce-overhead"
model = torch.compile(model, mode=mode)
