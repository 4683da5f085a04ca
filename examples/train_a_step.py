"""Replay a training step: forward and backward as graphs, the optimizer as it is.

python examples/train_a_step.py
"""

import torch
from torch import nn

import rocsolid as rs

device = "cuda" if torch.cuda.is_available() else "cpu"


def student() -> nn.Module:
    """The same weights each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A task that can be learnt: the sum of the inputs."""
    torch.manual_seed(1)
    inputs = [torch.randn(64, 8, device=device) for _ in range(count)]
    return [(x, x.sum(1, keepdim=True)) for x in inputs]


def train(model: nn.Module, call: nn.Module) -> list[float]:
    """Sixty steps; `call` is what is called, `model` is whose weights are updated."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for x, y in batches(60):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(call(x), y)
        loss.backward()  # before the next call of the same kind
        optimizer.step()  # writes weights in place, which a graph sees
        losses.append(loss.detach())
    return torch.stack(losses).tolist()  # read once, at the end: reading in the loop waits for the device each time


plain = student()
eager = train(plain, plain)

model = student()
step = rs.capture(model, backward=True, on_error="raise", backend="device" if device == "cuda" else "record")
captured = train(model, step)

print(f"loss {captured[0]:.3f} → {captured[-1]:.3f}; eager {eager[0]:.3f} → {eager[-1]:.3f}")
print(step.report())
assert captured[-1] < captured[0] / 10
torch.testing.assert_close(torch.tensor(captured), torch.tensor(eager), rtol=1e-2, atol=1e-3)
assert step.report().replays >= 58
