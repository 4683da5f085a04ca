import torch


def build(model, mode):
    return torch.compile(model, mode=mode)


if torch.version.hip is None:
    fast = torch.compile(build, mode="reduce-overhead")
plain = torch.compile(build, mode="max-autotune-no-cudagraphs")
