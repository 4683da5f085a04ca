"""Replays draw the same random numbers as eager."""

from typing import Any

import pytest

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def noisy(x: Any) -> Any:
    return torch.nn.functional.dropout(x, 0.5, training=True) + torch.randn_like(x)


def sequence(function: Any, x: Any, seed: int, times: int) -> list[Any]:
    torch.manual_seed(seed)
    drawn = []
    for _ in range(times):
        drawn.append(function(x))
        drawn.append(torch.randn(2, device=x.device))  # other code draws in between
    return drawn


def test_replays_draw_the_same_sequence_as_eager(target: Any) -> None:
    g, x = target.capture(noisy), target.randn(50)
    for seed in (1, 2):
        eager, replayed = sequence(noisy, x, seed, 4), sequence(g, x, seed, 4)
        assert all(torch.equal(a, b) for a, b in zip(eager, replayed, strict=True))
    assert g.report().replays == 7
    assert not torch.equal(g(x), g(x))


def test_a_user_generator_advances(target: Any) -> None:
    own, twin = (torch.Generator(device=target.device).manual_seed(3) for _ in range(2))

    def drawn(generator: Any) -> Any:
        return lambda x: x + torch.randn(x.shape, generator=generator, device=x.device)

    g, eager, x = target.capture(drawn(own), generators=[own]), drawn(twin), target.randn(5)
    for _ in range(4):
        assert torch.equal(g(x), eager(x))
    assert g.report().replays == 3


def test_a_capture_draws_no_random_numbers(target: Any) -> None:
    torch.manual_seed(5)
    x = target.randn(4)
    g = target.capture(lambda x: x * 2)
    before = torch.randn(3, device=target.device)
    torch.manual_seed(5)
    target.randn(4)
    g(x)
    assert torch.equal(torch.randn(3, device=target.device), before)
