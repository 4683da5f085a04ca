import torch

# rocsolid: allow[dead-setting] there was one
x = torch.zeros(1)
y = torch.zeros(1)  # rocsolid: allow[no-such-rule] what is this
