"""A flow-matching action expert (18 layers that attend to a cached prefix, run ten times in a row), and an encoder."""

from typing import Any

import torch
from torch import nn


class Block(nn.Module):  # type: ignore[misc]
    """A layer of an action expert: attention over cached prefix and own tokens, then a feed-forward part."""

    def __init__(self, width: int = 1024, heads: int = 8, inner: int = 4096) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        """Tokens in, tokens out."""
        batch, count, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        key, value = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, count, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Expert(nn.Module):  # type: ignore[misc]
    """Eighteen layers that predict a velocity."""

    def __init__(self, layers: int = 18, width: int = 1024) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.time = nn.Linear(1, width)

    def forward(self, x: Any, when: Any, keys: Any, values: Any) -> Any:
        """One step."""
        x = x + self.time(when)
        for layer, key, value in zip(self.layers, keys, values, strict=True):
            x = layer(x, key, value)
        return x


class TenSteps(nn.Module):  # type: ignore[misc]
    """Ten steps from noise to actions, as one call."""

    def __init__(self, layers: int = 18, steps: int = 10) -> None:
        super().__init__()
        self.expert = Expert(layers)
        self.register_buffer("when", torch.linspace(1, 1 / steps, steps).view(steps, 1, 1, 1))

    def forward(self, noise: Any, keys: Any, values: Any) -> Any:
        """Actions."""
        for when in self.when:
            noise = noise - self.expert(noise, when, keys, values) / len(self.when)
        return noise


class Encoder(nn.Module):  # type: ignore[misc]
    """Twelve layers with a padding mask."""

    def __init__(self, layers: int = 12, width: int = 1024, heads: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, ids: Any, mask: Any) -> Any:
        """Token vectors."""
        x = self.embed(ids)
        bias = torch.where(mask, 0.0, float("-inf")).to(x.dtype)[:, None, None, :]
        for layer in self.layers:
            batch, count, width = x.shape
            parts = layer.qkv(layer.norm1(x)).view(batch, count, 3, layer.heads, -1).permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(*parts, attn_mask=bias)
            x = x + layer.out(seen.transpose(1, 2).reshape(batch, count, width))
            x = x + layer.down(nn.functional.gelu(layer.up(layer.norm2(x))))
        return x
