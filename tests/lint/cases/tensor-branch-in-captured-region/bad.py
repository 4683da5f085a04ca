import torch


def pick(x, mask):
    return x if mask.all() else -x


def capture(graph, x, mask):
    with torch.cuda.graph(graph):
        return pick(x, mask)
