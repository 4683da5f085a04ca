import torch

if torch.version.hip:
    FP8 = torch.float8_e4m3fnuz
else:
    FP8 = torch.float8_e4m3fn
other = torch.float8_e4m3fn if not is_hip() else torch.float8_e4m3fnuz
