"""Workloads that a dry run has to finish: `rocsolid dryrun benchmarks/dryrun_models.py:llama_block`.

Small models that together contain every kind of kernel, and public models made from their configurations.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

Given = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
_BF16: Final = torch.bfloat16


class Norm(nn.Module):  # type: ignore[misc]
    """RMS norm, computed in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        """Returns the same shape."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


def rotary(x: Any) -> Any:
    """Rotary position embedding."""
    tokens, width = x.shape[-2:]
    rates = 10000.0 ** (-torch.arange(0, width, 2, device=x.device) / width)
    angles = torch.arange(tokens, device=x.device)[:, None] * rates
    left, right = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1).to(x.dtype)


class Block(nn.Module):  # type: ignore[misc]
    """A Llama block: attention with rotary positions, then a gated MLP."""

    def __init__(self, width: int = 2048, heads: int = 16, wide: int = 5632, *, flex: bool = False) -> None:
        super().__init__()
        self.heads, self.flex = heads, flex
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, wide, bias=False) for _ in range(2))
        self.down = nn.Linear(wide, width, bias=False)

    def forward(self, x: Any) -> Any:
        """Tokens in, tokens out."""
        query, key, value = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = self.attention(rotary(query), rotary(key), value)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def attention(self, query: Any, key: Any, value: Any) -> Any:
        """Scaled dot product attention, or FlexAttention, for which Inductor generates the kernel."""
        if self.flex:
            from torch.nn.attention.flex_attention import flex_attention

            return flex_attention(query, key, value)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class Language(nn.Module):  # type: ignore[misc]
    """Two blocks between an embedding and a cross-entropy."""

    def __init__(self, words: int = 32000, width: int = 1024) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, 8, 2816) for _ in range(2)))
        self.norm, self.head = Norm(width), nn.Linear(width, words, bias=False)

    def forward(self, words: Any, wanted: Any) -> Any:
        """The loss."""
        logits = self.head(self.norm(self.blocks(self.words(words))))
        return functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())


class Convolutions(nn.Module):  # type: ignore[misc]
    """Two convolutions with batch normalisation, the second with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.conv2, self.norm2 = nn.Conv2d(64, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        self.head = nn.Linear(64, 1000)

    def forward(self, x: Any) -> Any:
        """Images in, classes out."""
        x = functional.max_pool2d(functional.relu(self.norm1(self.conv1(x))), 3, 2, 1)
        x = functional.relu(self.norm2(self.conv2(x)) + x)
        return self.head(x.mean((2, 3)))


class Dropout(nn.Module):  # type: ignore[misc]
    """An MLP with dropout, so that its kernels need random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(1024, 4096), nn.LayerNorm(4096), nn.Linear(4096, 1024)

    def forward(self, x: Any) -> Any:
        """Returns the same shape."""
        x = self.norm(functional.dropout(functional.gelu(self.up(x)), 0.1, training=True))
        return functional.dropout(self.down(x), 0.1, training=True)


def mlp() -> Given:
    """Linear layers around a norm, with a softmax at the end."""
    layers = (nn.Linear(1024, 4096), nn.GELU(), nn.LayerNorm(4096), nn.Linear(4096, 1024), nn.Softmax(-1))
    return nn.Sequential(*layers).to(_BF16), (torch.randn(512, 1024, dtype=_BF16),), {}


def llama_block() -> Given:
    """A Llama block with scaled dot product attention."""
    return Block().to(_BF16), (torch.randn(2, 512, 2048, dtype=_BF16),), {}


def llama_flex() -> Given:
    """A Llama block with FlexAttention, an Inductor template."""
    return Block(flex=True).to(_BF16), (torch.randn(2, 512, 2048, dtype=_BF16),), {}


def language() -> Given:
    """A language model that returns its loss, so that it can be trained."""
    return Language().to(_BF16), tuple(torch.randint(0, 32000, (4, 512)) for _ in range(2)), {}


def convolutions() -> Given:
    """Convolutions on a batch of sixteen images."""
    return Convolutions().to(_BF16), (torch.randn(16, 3, 224, 224, dtype=_BF16),), {}


def dropping() -> Given:
    """An MLP with dropout."""
    return Dropout().to(_BF16), (torch.randn(512, 1024, dtype=_BF16),), {}


def _public(name: str) -> Callable[[], Given]:
    def build() -> Given:
        from benchmarks.models import MODELS

        built = MODELS[name]()
        given = tuple(x.to(_BF16) if x.is_floating_point() else x for x in built.inputs)
        return built.model.to(_BF16), given, {}

    return build


bert, gpt2, llama, whisper = map(_public, ("bert", "gpt2", "llama", "whisper"))
clip_vision, t5_encoder, resnet50 = map(_public, ("clip_vision", "t5_encoder", "resnet50"))
swin_t, convnext_tiny = map(_public, ("swin_t", "convnext_tiny"))
