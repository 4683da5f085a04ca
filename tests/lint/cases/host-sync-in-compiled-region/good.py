import torch


def report(x):
    return x.abs().max().item()


@torch.compile
def step(x):
    if torch.compiler.is_compiling():
        return x
    print(x.sum().item())
    return x


def train(x):
    y = step(x)
    return report(y)
