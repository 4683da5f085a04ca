import torch


def shared_bytes(device):
    if torch.version.hip:
        return 65536
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin
