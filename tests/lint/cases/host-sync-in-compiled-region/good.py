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


@torch.compile
def scale_by_numbers(x, config, sizes):
    return x * float(config.scale.max()) * int(max(sizes)) * float(x.shape[0]) * float("2.5")
