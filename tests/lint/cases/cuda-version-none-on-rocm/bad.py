import torch
from packaging.version import Version


def is_12_9():
    if not torch.cuda.is_available():
        return False
    return torch.version.cuda.startswith("12.9")


def supports_graphs():
    return torch.version.cuda >= "12.3" and torch.cuda.is_available()


CUDA = Version(torch.version.cuda)
print("CUDA", torch.version.cuda.split("."))
