import torch

torch.compile = lambda model, **_: model
setattr(torch, "compile", lambda model, **_: model)
