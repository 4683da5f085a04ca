import torch

warp_size = torch.cuda.get_device_properties(0).warp_size
if torch.version.hip is None:
    WARP_SIZE = 32
WARPS = 32
