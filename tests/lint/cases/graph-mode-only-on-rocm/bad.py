import torch

is_rocm = torch.version.hip is not None
mode = "max-autotune" if is_rocm else "default"
if torch.version.cuda:
    other = "default"
else:
    other = "reduce-overhead"
if torch.version.hip is None:
    third = "default"
else:
    third = "reduce-overhead"
