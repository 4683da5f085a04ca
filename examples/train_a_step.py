"""Replay a training step: forward and backward as CUDA graphs, the optimizer in eager.

python examples/train_a_step.py
"""

import torch
from torch import nn

import rocsolid as rs

device = "cuda" if torch.cuda.is_available() else "cpu"


def make_model() -> nn.Module:
    """A small model, with the same weights every time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of a simple task: the sum of the inputs."""
    torch.manual_seed(1)
    inputs = [torch.randn(64, 8, device=device) for _ in range(count)]
    return [(x, x.sum(1, keepdim=True)) for x in inputs]


def train(model: nn.Module, call: nn.Module) -> list[float]:
    """Train for sixty steps; `call` computes the output, `model` owns the weights."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for x, y in batches(60):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(call(x), y)
        loss.backward()  # must come before the next call with the same input signature
        optimizer.step()  # updates the weights in place, so the graph uses the new values
        losses.append(loss.detach())
    return torch.stack(losses).tolist()  # one host sync at the end instead of one per step


eager_model = make_model()
eager_losses = train(eager_model, eager_model)

model = make_model()
step = rs.capture(model, backward=True, on_error="raise", backend="device" if device == "cuda" else "record")
losses = train(model, step)

print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}; eager {eager_losses[0]:.3f} → {eager_losses[-1]:.3f}")
print(step.report())
assert losses[-1] < losses[0] / 10
torch.testing.assert_close(torch.tensor(losses), torch.tensor(eager_losses), rtol=1e-2, atol=1e-3)
assert step.report().replays >= 58
