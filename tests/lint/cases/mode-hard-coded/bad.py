import torch
from torch import compile as fast_compile


class Runner:
    def __init__(self, model):
        self.model = torch.compile(model, mode="max-autotune")


@torch.compile(mode="reduce-overhead", fullgraph=True)
def step(x):
    return x + 1


other = fast_compile(step, mode="reduce-overhead")
