import torch

FP8 = torch.float8_e4m3fnuz if is_gfx942() else torch.float8_e4m3fn
other = torch.float8_e4m3fnuz if torch.version.hip and "gfx94" in arch else torch.float8_e4m3fn
kind = torch.float16 if torch.version.hip else torch.bfloat16

if torch.version.cuda:
    limits = (torch.float8_e4m3fn,)
else:
    limits = (torch.float8_e4m3fnuz,) if torch.cuda.get_device_capability() < (9, 5) else (torch.float8_e4m3fn,)
