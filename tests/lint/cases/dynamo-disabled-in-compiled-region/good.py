import torch


@torch.compiler.disable
def log(x):
    return x


@torch.compile
def step(x):
    if not torch.compiler.is_compiling():
        log(x)
    return x + 1
