import torch


@torch.compile
def step(x, flags):
    if any(flags):
        x = x + 1
    if not torch.compiler.is_compiling() and (x > 0).all():
        x = x - 1
    return x


def eager(mask):
    if mask.any():
        return 1
