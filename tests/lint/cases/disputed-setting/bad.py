import torch

torch._inductor.config.coordinate_descent_tuning = True
