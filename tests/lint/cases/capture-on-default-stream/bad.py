import torch


def capture(graph, model, x):
    with torch.cuda.graph(graph, stream=torch.cuda.default_stream()):
        return model(x)


def capture_by_hand(model, x):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    out = model(x)
    graph.capture_end()
    return graph, out
