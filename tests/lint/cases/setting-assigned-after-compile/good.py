import torch


def serve(model, x, debug):
    fast = torch.compile(model)
    torch._inductor.config.epilogue_fusion = False
    if debug:
        fast(x)
    else:
        torch._inductor.config.shape_padding = False
    return fast


def other(model, x):
    with torch._inductor.config.patch(epilogue_fusion=False):
        return torch.compile(model)(x)


def measure(model, x):
    saved = torch._dynamo.config.capture_scalar_outputs
    torch._dynamo.config.capture_scalar_outputs = True
    try:
        compiled = torch.compile(model)
        compiled(x)
    finally:
        torch._dynamo.config.capture_scalar_outputs = saved
