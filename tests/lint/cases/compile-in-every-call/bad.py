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
