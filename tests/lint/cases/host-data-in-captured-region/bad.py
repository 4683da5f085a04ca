import torch


def positions_from(lengths):
    return torch.as_tensor(lengths, device="cuda")


def capture(graph, model, lengths, array):
    with torch.cuda.graph(graph):
        a = torch.from_numpy(array)
        return model(positions_from(lengths), a)
