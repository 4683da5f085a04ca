import torch


def serve(model, x, weights):
    model.load_state_dict(weights)
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        fast = torch.compile(model)
        fast(x)
    return fast
