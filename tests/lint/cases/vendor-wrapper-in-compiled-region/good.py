import aiter
import torch


def eager(q, k, v):
    return aiter.flash_attn_func(q, k, v)


@torch.compile
def block(q, k, v):
    return torch.ops.aiter.mha_fwd.default(q, k, v)
