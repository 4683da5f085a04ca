import torch


class Wrapper:
    def capture(self):
        with torch.cuda.graph(self.graph):
            self.out = self.model(*self.slots)

    def step(self):
        self.graph.replay()
        return self.out.clone()
