import torch

torch._inductor.config.group_fusion = True
with torch._inductor.config.patch(group_fusion=True):
    pass
