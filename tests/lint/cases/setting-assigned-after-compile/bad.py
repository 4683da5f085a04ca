import torch


def serve(model, x):
    fast = torch.compile(model)
    with torch.no_grad():
        fast(x)
    torch._inductor.config.epilogue_fusion = False
    return fast
