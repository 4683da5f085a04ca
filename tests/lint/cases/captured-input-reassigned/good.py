import torch


class Wrapper:
    def __init__(self, tokens):
        self.tokens = tokens

    def capture(self):
        with torch.cuda.graph(self.graph):
            self.out = self.model(self.tokens)

    def step(self, tokens):
        self.tokens.copy_(tokens)
        self.graph.replay()


def views_of_a_buffer(model, graph, batch):
    buffer = torch.zeros(8, 576)
    left, right = torch.split(buffer, [512, 64], dim=-1)
    with torch.cuda.graph(graph):
        out = model(left, right)

    left, right = torch.split(batch, [512, 64], dim=-1)
    buffer[:4].copy_(batch)
    graph.replay()
    return out, left, right
