"""The small workload that `make demo` tunes: three feed-forward layers of a transformer."""

from typing import Any

import torch
from torch import nn


class Layer(nn.Module):  # type: ignore[misc]
    """Norm, linear, GELU, linear, with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """Run the layer."""
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x)), approximate="tanh"))


def build() -> Any:
    """Return the model, its arguments and keyword arguments."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # with a thread per core, other programs would disturb the timing
    return nn.Sequential(*(Layer(128) for _ in range(3))).eval(), (torch.randn(64, 128),), {}
