import torch

a = torch.compile(model, options={"epilogue_fusion": True})
b = torch.compile(model, mode="default")
c = torch.compile(model, mode=None, options={"epilogue_fusion": True})
