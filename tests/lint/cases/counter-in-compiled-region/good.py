import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.calls += 1
        self.seen = torch.zeros(())
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.seen += 1
        self.count += 1
        if not torch.compiler.is_compiling():
            self.calls += 1
        return x * 2

    def log(self):
        self.calls += 1


class Tokens:
    def __init__(self):
        self.position = 0

    def next(self):
        self.position += 1


model = torch.compile(Net())
