import torch


def build(self, model):
    try:
        self.model = torch.compile(model)
    except RuntimeError:
        self.model = model
