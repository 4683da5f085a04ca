import torch

# rocsolid: allow[dead-setting] the setting was removed
x = torch.zeros(1)
y = torch.zeros(1)  # rocsolid: allow[no-such-rule] no rule has this name
