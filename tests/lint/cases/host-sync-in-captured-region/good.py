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


def poll_event(graph, model, x, done_event, table):
    with torch.cuda.graph(graph):
        out = model(x)
        rows = table.query("all")
    while not done_event.query():
        pass
    return out, rows
