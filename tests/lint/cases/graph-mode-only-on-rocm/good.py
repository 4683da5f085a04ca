import torch

is_rocm = torch.version.hip is not None
mode = "max-autotune-no-cudagraphs" if is_rocm else "max-autotune"
label = "reduce-overhead" if verbose else "default"
