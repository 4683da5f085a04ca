import torch


@torch.compile
def step(x, done):
    while not torch.all(done):
        x = x + 1
    assert (x > 0).all()
    return x
