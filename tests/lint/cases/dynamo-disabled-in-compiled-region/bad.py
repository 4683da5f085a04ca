import torch


class Block(torch.nn.Module):
    @torch._dynamo.disable
    def attention(self, x):
        return x

    def forward(self, x):
        return self.attention(x)


model = Block()
fast = torch.compile(model)
