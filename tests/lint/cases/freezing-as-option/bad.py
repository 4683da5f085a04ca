import torch


@torch.compile(options={"epilogue_fusion": True, "freezing": True})
def step(x):
    return x
