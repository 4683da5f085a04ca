"""Two layers of well-known transformers, written as the libraries that define them write them. Sizes are the real ones."""

import math
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional


class BertLayer(nn.Module):  # type: ignore[misc]
    """As in transformers: three layers for Q, K and V, and norms after the residual."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        q, k, v = (
            layer(x).view(*x.shape[:-1], self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(q, k, v)
        x = self.norm(x + functional.dropout(self.out(seen.transpose(1, 2).reshape(x.shape).contiguous()), 0.1, False))
        return self.last_norm(x + self.narrow(functional.gelu(self.wide(x))))


class Conv1D(nn.Module):  # type: ignore[misc]
    """A linear layer whose weight is not transposed."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(inputs, outputs) / math.sqrt(inputs)),
            nn.Parameter(torch.zeros(outputs)),
        )

    def forward(self, x: Any) -> Any:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class GptLayer(nn.Module):  # type: ignore[misc]
    """As GPT-2 in transformers: Q, K and V from one product, and an activation that is written out."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = Conv1D(3 * width, width), Conv1D(width, width)
        self.wide, self.narrow = Conv1D(inner, width), Conv1D(width, inner)
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        mask = causal_mask(x)
        parts = self.qkv(self.norm(x)).split(x.shape[-1], dim=2)
        q, k, v = (part.view(*x.shape[:-1], self.heads, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape).contiguous())
        y = self.wide(self.last_norm(x))
        y = 0.5 * y * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0))))
        return x + self.narrow(y)


def causal_mask(x: Any) -> Any:
    """As transformers builds it while a model is compiled: from positions, and not as `is_causal`."""
    positions = torch.arange(x.shape[1], device=x.device)
    visible = positions[None, None, None, :] <= positions[None, None, :, None]
    return visible.expand(x.shape[0], -1, x.shape[1], x.shape[1])


class VitLayer(nn.Module):  # type: ignore[misc]
    """As in torchvision, with torch's own attention module."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        seen, _ = self.attention(y, y, y, need_weights=False)
        x = x + seen
        return x + self.narrow(functional.gelu(self.wide(self.last_norm(x))))


class LlamaLayer(nn.Module):  # type: ignore[misc]
    """As in transformers: keys and values of fewer heads, repeated; rotary positions; gate and up."""

    def __init__(self, width: int, heads: int, inner: int, kv_heads: int = 4) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, kv_heads * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.norm, self.last_norm = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        q, k, v = (
            layer(y).view(*x.shape[:-1], -1, self.size).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        q, k = rotated(q), rotated(k)
        k, v = (self.repeated(part) for part in (k, v))
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=causal_mask(x))
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape).contiguous())
        y = self.last_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def repeated(self, part: Any) -> Any:
        batch, kv_heads, tokens, size = part.shape
        times = self.heads // kv_heads
        part = part[:, :, None, :, :].expand(batch, kv_heads, times, tokens, size)
        return part.reshape(batch, kv_heads * times, tokens, size)


def rotated(x: Any) -> Any:
    """Rotate pairs of columns by angles that depend on the position."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)[:, None] * frequencies
    cos, sin = (torch.cat([part, part], -1).to(x.dtype) for part in (angles.cos(), angles.sin()))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class DenoiserLayer(nn.Module):  # type: ignore[misc]
    """A few tokens that also attend to a long prefix, as in a robot policy."""

    def __init__(self, width: int, heads: int, inner: int, prefix: int = 800) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.norm, self.last_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.register_buffer("keys", torch.randn(1, heads, prefix, width // heads))
        self.register_buffer("values", torch.randn(1, heads, prefix, width // heads))

    def forward(self, x: Any) -> Any:
        parts = self.qkv(self.norm(x)).view(*x.shape[:-1], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        keys, values = torch.cat([self.keys, parts[1]], 2), torch.cat([self.values, parts[2]], 2)
        seen = functional.scaled_dot_product_attention(parts[0], keys, values)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.wide(self.last_norm(x))))


# The layer, its sizes, and the number of tokens.
KINDS: Final[dict[str, tuple[Any, tuple[int, int, int], int]]] = {
    "bert": (BertLayer, (768, 12, 3072), 128),
    "gpt2": (GptLayer, (768, 12, 3072), 64),
    "vit": (VitLayer, (768, 12, 3072), 197),
    "llama": (LlamaLayer, (1024, 16, 2816), 32),
    "denoiser": (DenoiserLayer, (1024, 8, 4096), 50),
}


def two_layers(kind: str) -> tuple[Any, Any]:
    """Return a model of two layers, in float32 on the CPU, and an input for it."""
    layer, sizes, tokens = KINDS[kind]
    return nn.Sequential(layer(*sizes), layer(*sizes)).eval(), torch.randn(1, tokens, sizes[0])
