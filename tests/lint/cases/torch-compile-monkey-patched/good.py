import torch

compile = torch.compile
original = torch.compile
