import torch


def capture_all(layers, x, pool):
    graphs = []
    for layer in layers:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            x = layer(x)
        graphs.append(graph)
    return graphs
