import torch


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, compiled=True):
        def compute(y):
            return y * 2

        run = torch.compile(compute) if compiled else compute
        return run(x)


class Layer(torch.nn.Module):
    def __call__(self, x):
        return torch.compile(self.compute)(x)


def topk(scores):
    return scores.topk(2)


def route(scores, compiled=True):
    run = torch.compile(topk, dynamic=True) if compiled else topk
    return run(scores)
