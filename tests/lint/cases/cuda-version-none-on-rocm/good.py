import torch
from packaging.version import Version


def is_12_9():
    if torch.version.cuda is None:
        return False
    return torch.version.cuda.startswith("12.9")


def supports_graphs():
    return torch.version.cuda is not None and torch.version.cuda >= "12.3"


def major():
    return torch.version.cuda.split(".")[0] if torch.version.cuda else ""


if torch.version.hip is None:
    CUDA = Version(torch.version.cuda)

print("CUDA", torch.version.cuda)
print("CUDA", torch.version.cuda.split(".") if torch.version.cuda else "none")
if torch.version.cuda:
    print(torch.version.cuda.split("."))
