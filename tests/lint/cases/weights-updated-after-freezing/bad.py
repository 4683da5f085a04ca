import torch


def serve(model, x, weights):
    torch._inductor.config.freezing = True  # rocsolid: allow[freezing-for-all-compiles] one model in this process
    fast = torch.compile(model)
    fast(x)
    model.load_state_dict(weights)
    return fast
