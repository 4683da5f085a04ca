import torch


def capture(model, x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x)
        print("captured")
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return graph, out.sum().item()
