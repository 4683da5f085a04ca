import torch


def build(model, example):
    try:
        fast = torch.compile(model)
        fast(example)
    except Exception:
        fast = model
    try:
        other = torch.compile(model)
    except AttributeError:  # a torch release without torch.compile
        other = model
    return fast, other
