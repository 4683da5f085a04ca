import torch


def has_tma(device):
    return torch.cuda.get_device_capability(device) >= (9, 0)


def is_hopper():
    return torch.cuda.get_device_capability()[0] == 9
