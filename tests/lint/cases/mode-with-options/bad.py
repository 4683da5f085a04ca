import torch


@torch.compile(mode="max-autotune-no-cudagraphs", options={"epilogue_fusion": True})
def step(x):
    return x
