import torch


class Wrapper:
    def capture(self, x):
        with torch.cuda.graph(self.graph):
            self.out = x + 1

    def step(self):
        self.graph.replay()
        return self.out.clone()
