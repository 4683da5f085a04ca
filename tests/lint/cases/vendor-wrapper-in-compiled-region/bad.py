import aiter
import torch


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return aiter.flash_attn_func(q, k, v)


fast = torch.compile(Attention())
