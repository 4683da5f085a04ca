"""Capture a denoiser of several steps as one CUDA graph, for prompts of different lengths.

python examples/capture_a_denoiser.py

Without a GPU, backend="record" records the operators of a call on the CPU. It replays them like a GPU graph: in static memory, and
without running the Python code again.
"""

import torch
from torch import nn

import rocsolid as rs

STEPS, WIDTH, ACTIONS = 4, 32, 8
device = "cuda" if torch.cuda.is_available() else "cpu"  # a ROCm build calls its devices cuda too


class Block(nn.Module):
    """Cross-attention from actions to the prompt, then a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor, prompt: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Apply the block. The mask excludes padding from the attention; without it, padding would change the result."""
        scores = self.query(self.norm(x)) @ self.key(prompt).transpose(-1, -2) / WIDTH**0.5
        x = x + scores.masked_fill(mask[:, None] == 0, -1e9).softmax(-1) @ self.value(prompt)
        return x + self.feed_forward(x)


class Denoiser(nn.Module):
    """Turns noise into actions in a few steps; the loop over the steps is part of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.register_buffer("times", torch.linspace(1, 1 / STEPS, STEPS).view(STEPS, 1, 1, 1))

    def forward(self, noise: torch.Tensor, prompt: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Run all denoising steps."""
        for time in self.times:
            x = noise + time
            for block in self.blocks:
                x = block(x, prompt, mask)
            noise = noise - x / STEPS
        return noise


def request(length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return noise, and a prompt of the given length with its mask."""
    prompt, mask = torch.randn(1, length, WIDTH, device=device), torch.ones(1, length, device=device)
    return torch.randn(1, ACTIONS, WIDTH, device=device), prompt, mask


model = Denoiser().to(device).eval()
# The two sizes with the least padding for these lengths.
sizes = rs.Bucket.from_lengths([5, 9, 12, 14, 30, 31], 2, dim=1).sizes
fast = rs.capture(
    model,
    buckets={"prompt": rs.Bucket(dim=1, sizes=sizes), "mask": rs.Bucket(dim=1, sizes=sizes, pad=0)},
    backend="device" if device == "cuda" else "record",
    on_error="raise",
)

with torch.no_grad():
    fast.warm([(request(length), {}) for length in sizes])
    for length in (5, 14, 30, 9, 31):
        call = request(length)
        torch.testing.assert_close(fast(*call), model(*call), rtol=1e-3, atol=1e-4)

print(fast.report())
print(fast.explain(*request(40)))
report = fast.report()
assert (len(report.graphs), report.replays) == (2, 5)
