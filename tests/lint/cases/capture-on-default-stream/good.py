import torch


def capture_by_hand(graph, model, x):
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        out = model(x)
        graph.capture_end()
    return out


def capture(graph, model, x, side_stream):
    with torch.cuda.graph(graph, stream=side_stream):
        return model(x)
