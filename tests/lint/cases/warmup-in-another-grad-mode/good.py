import torch


class Wrapper:
    @torch.no_grad()
    def capture(self, x):
        for _ in range(3):
            self.model(x)
        with torch.cuda.graph(self.graph):
            self.out = self.model(x)


def other(model, graph, x):
    with torch.no_grad():
        for _ in range(3):
            model(x)
    with torch.no_grad(), torch.cuda.graph(graph):
        return model(x)
