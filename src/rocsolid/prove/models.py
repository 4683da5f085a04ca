"""Six models of plain torch, and how long a call takes: in eager, with `torch.compile`, with `rs.optimize`.

python -m rocsolid.prove.models decoder rs.optimize
"""

import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from rocsolid.numerics import error_limit, is_as_exact, relative_error

_CALLS: Final = 40
_OPTIMIZE_BUDGET_S: Final = 30.0
_WIDTH, _HEADS, _LAYERS, _TOKENS, _PREFIX, _STEPS = 768, 12, 12, 128, 800, 10


class Block(nn.Module):  # type: ignore[misc]
    """A transformer layer. `keys` are tokens to attend to besides its own."""

    def __init__(self, *, causal: bool = False, gated: bool = False) -> None:
        super().__init__()
        self.causal, self.gated = causal, gated
        norm = nn.RMSNorm if gated else nn.LayerNorm
        self.before, self.after = norm(_WIDTH), norm(_WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(_WIDTH, _WIDTH, bias=not gated) for _ in range(4))
        self.up, self.down = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)
        self.gate = nn.Linear(_WIDTH, 4 * _WIDTH) if gated else None

    def forward(self, x: Any, mask: Any = None, keys: Any = None) -> Any:
        """Tokens in, tokens out."""
        seen = self.before(x)
        from_tokens = seen if keys is None else torch.cat([keys, seen], 1)
        q, k, v = (
            project(tokens).unflatten(-1, (_HEADS, -1)).transpose(1, 2)
            for project, tokens in ((self.q, seen), (self.k, from_tokens), (self.v, from_tokens))
        )
        attended = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        seen = self.after(x)
        wide = functional.gelu(self.up(seen)) if self.gate is None else functional.silu(self.gate(seen)) * self.up(seen)
        return x + self.down(wide)


class Encoder(nn.Module):  # type: ignore[misc]
    """Token ids and a padding mask, as in BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, _WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(_LAYERS))

    def forward(self, ids: Any, padding: Any) -> Any:
        """The last hidden state."""
        x, mask = self.embed(ids), padding[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Decoder(nn.Module):  # type: ignore[misc]
    """Causal attention, gated layers and RMS norms, as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(1000, _WIDTH), nn.Linear(_WIDTH, 1000, bias=False)
        self.layers = nn.Sequential(*(Block(causal=True, gated=True) for _ in range(_LAYERS)))

    def forward(self, ids: Any) -> Any:
        """Logits."""
        return self.head(self.layers(self.embed(ids)))


class Patches(nn.Module):  # type: ignore[misc]
    """An image cut into patches, as in ViT."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.head = nn.Conv2d(3, _WIDTH, 16, 16), nn.Linear(_WIDTH, 1000)
        self.layers = nn.Sequential(*(Block() for _ in range(_LAYERS)))

    def forward(self, image: Any) -> Any:
        """Classes."""
        return self.head(self.layers(self.cut(image).flatten(2).transpose(1, 2)).mean(1))


class Residual(nn.Module):  # type: ignore[misc]
    """Convolutions with batch norm around a residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        parts = [
            part
            for _ in range(2)
            for part in (nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        ]
        self.inner = nn.Sequential(*parts[:-1])

    def forward(self, x: Any) -> Any:
        """An image in, an image out."""
        return functional.relu(x + self.inner(x))


class Denoiser(nn.Module):  # type: ignore[misc]
    """Ten steps of six layers over 50 tokens, which attend to a prefix of 800 tokens, as in a robot policy."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(gated=True) for _ in range(6))

    def forward(self, noise: Any, prefix: Any) -> Any:
        """The actions."""
        for _ in range(_STEPS):
            x = noise
            for layer in self.layers:
                x = layer(x, keys=prefix)
            noise = noise - x / _STEPS
        return noise


def _ids() -> Any:
    return torch.randint(0, 1000, (1, _TOKENS))


def _convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 64, 7, 4, 3), *(Residual(64) for _ in range(12)), nn.AvgPool2d(8), nn.Flatten())


def _layers() -> nn.Module:
    return nn.Sequential(*(part for _ in range(24) for part in (nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024))))


MODELS: Final[Mapping[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]]] = {
    "encoder": (Encoder, lambda: (_ids(), torch.arange(_TOKENS)[None] < 3 * _TOKENS // 4)),
    "decoder": (Decoder, lambda: (_ids(),)),
    "patches": (Patches, lambda: (torch.randn(1, 3, 224, 224),)),
    "convolutions": (_convolutions, lambda: (torch.randn(1, 3, 224, 224),)),
    "denoiser": (Denoiser, lambda: (torch.randn(1, 50, _WIDTH), torch.randn(1, _PREFIX, _WIDTH))),
    "layers": (_layers, lambda: (torch.randn(4, 1024),)),
}


def measure(name: str, method: str, device: str = "cuda", dtype: Any = torch.bfloat16) -> dict[str, Any]:
    """Set a model up with a method, compare its results with eager's, and time calls from their start to the result."""
    import rocsolid as rs

    torch.manual_seed(0)
    make, make_inputs = MODELS[name]
    eager = make().to(device, dtype).eval()
    first, second = (tuple(x.to(device, dtype if x.is_floating_point() else None) for x in make_inputs()) for _ in "12")
    started = time.perf_counter()
    with torch.no_grad():
        fast: Callable[..., Any] = eager
        if method == "reduce-overhead":
            # rocsolid: allow[mode-hard-coded] it is what rs.optimize is compared with
            fast = torch.compile(eager, mode="reduce-overhead")
        elif method == "rs.optimize":
            fast = rs.optimize(eager, first, budget_s=_OPTIMIZE_BUDGET_S)
        for _ in range(3):
            fast(*first)
        _wait(device)
        setup_s = time.perf_counter() - started
        wrong = is_wrong(fast, eager, second)
        times = []
        for _ in range(_CALLS):
            _wait(device)
            started = time.perf_counter()
            fast(*first)
            _wait(device)
            times.append(time.perf_counter() - started)
    return {"ms": statistics.median(times) * 1e3, "set-up s": round(setup_s, 1), "differs": wrong}


def is_wrong(fast: Callable[..., Any], eager: nn.Module, inputs: tuple[Any, ...]) -> bool:
    """Return whether a result is too far from eager's, and also further from float64 than eager's."""
    got, want = fast(*inputs), eager(*inputs)
    if relative_error(got, want) <= error_limit(want):
        return False
    exact = copy.deepcopy(eager).double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    return not is_as_exact(got, want, exact)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(measure(*sys.argv[1:3]))}\n")
