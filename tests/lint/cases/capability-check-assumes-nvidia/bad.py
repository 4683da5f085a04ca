import torch


def has_tma(device):
    return torch.cuda.get_device_capability(device) >= (9, 0)


def is_hopper():
    return torch.cuda.get_device_capability()[0] == 9


def _sm():
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


def choose(x):
    major, _ = torch.cuda.get_device_capability(x.device)
    if major < 9:
        return "ampere"
    return "fast" if _sm() >= 100 else "hopper"


def uses_clusters(current_platform):
    return current_platform.has_device_capability(90)


def supports_tma(device_type):
    if device_type == "xpu":
        return False
    major, _ = torch.cuda.get_device_capability()
    return major >= 9
