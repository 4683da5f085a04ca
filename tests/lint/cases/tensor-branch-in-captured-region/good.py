import torch


def capture(graph, model, x, flags):
    if x.any():
        x = x + 1
    with torch.cuda.graph(graph):
        out = model(x) if all(flags) else x
    return out
