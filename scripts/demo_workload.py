"""The model of `make demo`: the transformer encoder of torch.nn, as an embedding model would use it."""

from typing import Any

import torch
from torch import nn


def build() -> Any:
    """Return the model, its arguments and keyword arguments."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, activation=nn.functional.silu)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval().to(device)
    return model, (torch.randn(1, 32, 128, device=device),), {}
