import torch


def capture(a, b, model, x, pool, small):
    if small:
        with torch.cuda.graph(a, pool=pool):
            return model(x)
    else:
        with torch.cuda.graph(b, pool=pool):
            return model(x)
