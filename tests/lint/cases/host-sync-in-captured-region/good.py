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


def capture_with_host_config(graph, kernel):
    with torch.cuda.graph(graph):
        launch(kernel)


def launch(kernel):
    config = torch.empty(7, dtype=torch.int32, device="cpu")
    kernel.configure(config)
    return kernel(int(config[6].item()))
