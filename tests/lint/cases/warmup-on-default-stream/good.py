import torch


def capture(model, graph, x, side):
    with torch.cuda.stream(side):
        model(x)
    with torch.cuda.graph(graph):
        out = model(x)
    return out
