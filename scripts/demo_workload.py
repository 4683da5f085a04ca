"""The small workload that `make demo` tunes: three feed-forward layers, as a transformer has them."""

from typing import Any

import torch
from torch import nn


class Layer(nn.Module):  # type: ignore[misc]
    """Widen, bend, narrow, and add what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """Tokens in, tokens out."""
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x)), approximate="tanh"))


def build() -> Any:
    """What to call, and with what."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # a thread for each core would measure the neighbours
    return nn.Sequential(*(Layer(128) for _ in range(3))).eval(), (torch.randn(64, 128),), {}
