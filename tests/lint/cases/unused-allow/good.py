import torch

# rocsolid: allow-file[dead-setting] our fork reads it
torch._inductor.config.group_fusion = True
