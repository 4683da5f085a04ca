import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.scaled(x)

    def scaled(self, x):
        self.calls += 2
        return x * 2


model = torch.compile(Net())
