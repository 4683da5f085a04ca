import torch


def capture(graph, model, lengths):
    rows = torch.tensor(lengths, device="cuda")
    with torch.cuda.graph(graph):
        scale = torch.tensor(2.0)
        zeros = torch.zeros(8, device="cuda")
        return model(rows, zeros, scale)
