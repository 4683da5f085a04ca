import torch


def build(model, example):
    try:
        fast = torch.compile(model)
        fast(example)
    except Exception:
        fast = model
    try:
        other = torch.compile(model)
    except AttributeError:  # a torch without it
        other = model
    return fast, other
