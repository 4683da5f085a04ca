import torch


def capture(model, graph, x):
    model(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = model(x)
    return out
