import torch

torch._inductor.config.group_fusion = True  # rocsolid: allow[dead-setting]
