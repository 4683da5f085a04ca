import torch


def is_hopper():
    return "H100" in torch.cuda.get_device_name(0) or "H200" in torch.cuda.get_device_name(0)


name = torch.cuda.get_device_name().lower()
if "a100" in name:
    peak = 312e12
