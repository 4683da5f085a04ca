import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = torch.compile(self.compute)

    def forward(self, x):
        if self.compiled is None:
            run = torch.compile(self.compute)
            self.compiled = run
        return self.compiled(x)


def train(model, batches):
    compiled = torch.compile(model)
    for batch in batches:
        compiled(batch)


def step(x):
    return x * 2


def main(x):
    return torch.compile(step)(x)


def serve(requests):
    compiled = torch.compile(step)
    return [compiled(request) for request in requests]


def measure(requests):
    compiled = torch.compile(step)
    for request in requests:
        compiled(request)


def test_forward_matches_eager(x):
    assert torch.compile(step)(x) == step(x)
