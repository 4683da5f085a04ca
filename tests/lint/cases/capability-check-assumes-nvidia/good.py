import torch


def has_tma(device):
    if torch.version.hip:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


capability = torch.cuda.get_device_capability()
