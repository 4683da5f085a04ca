"""Random numbers go on as they would eagerly."""

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
        drawn.append(torch.randn(2, device=x.device))  # somebody else draws in between
    return drawn


def test_the_sequence_is_eagers_for_the_same_seed(place: Any) -> None:
    g, x = place.capture(noisy), place.randn(50)
    for seed in (1, 2):
        eager, replayed = sequence(noisy, x, seed, 4), sequence(g, x, seed, 4)
        assert all(torch.equal(a, b) for a, b in zip(eager, replayed, strict=True))
    assert g.report().replays == 7
    assert not torch.equal(g(x), g(x))


def test_a_generator_of_ones_own_advances(place: Any) -> None:
    own, twin = (torch.Generator(device=place.device).manual_seed(3) for _ in range(2))

    def drawn(generator: Any) -> Any:
        return lambda x: x + torch.randn(x.shape, generator=generator, device=x.device)

    g, eager, x = place.capture(drawn(own), generators=[own]), drawn(twin), place.randn(5)
    for _ in range(4):
        assert torch.equal(g(x), eager(x))
    assert g.report().replays == 3


def test_capturing_draws_nothing(place: Any) -> None:
    torch.manual_seed(5)
    x = place.randn(4)
    g = place.capture(lambda x: x * 2)
    before = torch.randn(3, device=place.device)
    torch.manual_seed(5)
    place.randn(4)
    g(x)
    assert torch.equal(torch.randn(3, device=place.device), before)
