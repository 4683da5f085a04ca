import torch


def select_sign(x, mask):
    return x if mask.all() else -x


def capture(graph, x, mask):
    with torch.cuda.graph(graph):
        return select_sign(x, mask)
