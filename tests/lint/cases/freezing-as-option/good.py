import torch

a = torch.compile(model, options={"freezing": False})
b = torch.compile(model, backend="mine", options=chosen)
