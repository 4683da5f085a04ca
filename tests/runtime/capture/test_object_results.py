"""Results that contain objects of other classes, such as the KV cache of transformers: a replay builds them again."""

from typing import Any

import pytest

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


class Layer:
    """A layer of a cache."""

    is_sliding = False

    def __init__(self, keys: Any) -> None:
        self.keys = keys
        self.dtype = keys.dtype
        self.is_initialized = True


class Cache:
    """A cache with a list of layers, as in transformers."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.layer_class = Layer

    def __len__(self) -> int:
        return len(self.layers)

    def update(self, keys: Any) -> None:
        """Append to the first layer."""
        self.layers[0].keys = torch.cat([self.layers[0].keys, keys])


class Slots:
    """An object that a copy of its attributes does not rebuild."""

    __slots__ = ("keys",)

    def __init__(self, keys: Any) -> None:
        self.keys = keys


class Model(torch.nn.Module):  # type: ignore[misc]
    """Returns an object of its own with its result."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = Cache([Layer(torch.ones(2))])

    def forward(self, x: Any, kind: str = "new") -> Any:
        y = x * 2
        if kind == "new":
            cache = Cache([Layer(y + 1), Layer(y + 2)])
            cache.update(y)
            return {"y": y, "cache": cache}
        layer = Layer(y)
        return {
            "kept": (y, self.kept),
            "twice": (layer, layer),
            "with a function": Cache([self.forward, layer]),  # type: ignore[list-item]
            "slots": Slots(y),
        }[kind]


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_a_replay_builds_new_objects(target: Any, outputs: str) -> None:
    captured = target.capture(Model(), outputs=outputs)
    results = []
    for value in range(4):
        x = torch.full((3,), float(value), device=target.device)
        results.append(captured(x)["cache"])
        cache = results[-1]
        assert type(cache) is Cache
        assert type(cache.layers) is list
        assert len(cache) == 2
        assert cache.layer_class is Layer
        assert cache.layers[0].keys.tolist() == [2.0 * value + 1] * 3 + [2.0 * value] * 3
        assert cache.layers[1].keys.tolist() == [2.0 * value + 2] * 3
        assert cache.layers[1].dtype is torch.float32
        cache.update(x)  # the next result does not contain this
        cache.layers.pop()

    assert captured.report().replays == 3
    assert len({id(cache) for cache in results}) == 4


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("kept", "`result[1]` is a Cache that the function keeps, and a replay would return a copy"),
        ("twice", "`result[1]` is a tests.runtime.capture.test_object_results.Layer, which a replay cannot rebuild"),
        ("with a function", "`result.layers[0]` is a builtins.method, which a replay cannot rebuild"),
        ("slots", "`result` is a tests.runtime.capture.test_object_results.Slots, which a replay cannot rebuild"),
    ],
)
def test_an_object_that_cannot_be_built_again_is_refused(target: Any, kind: str, problem: str) -> None:
    model = target.module(Model())
    captured = target.capture(model)
    for _ in range(3):
        result = captured(target.randn(3), kind)

    (refusal,) = captured.report().refusals
    assert problem in refusal.message
    assert kind != "kept" or result[1] is model.kept
    assert kind != "twice" or result[0] is result[1]
