import torch


class Runner:
    def capture(self, x):
        with torch.cuda.graph(self.graph):
            self.output = self.model(x)

    def __call__(self, x):
        self.input.copy_(x)
        self.graph.replay()
        return torch.clone(self.output)

    def last_output(self):
        return self.output
