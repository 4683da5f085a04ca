import torch


def label():
    return "GPU " + torch.cuda.get_device_name(0)


def is_hopper():
    return torch.version.hip is None and "H100" in torch.cuda.get_device_name(0)


if torch.version.hip is None:
    name = torch.cuda.get_device_name()
    fast = "H100" in name
