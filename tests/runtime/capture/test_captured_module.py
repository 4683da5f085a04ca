"""A captured module is a module: it shares class, parameters, attributes, hooks and methods with the module inside."""

import copy
import inspect
import io
import pickle
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


class Model(torch.nn.Module):  # type: ignore[misc]
    """Has a method that calls the model, and one with the name of a method of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: Any, shift: float = 0.0) -> Any:
        return self.linear(x) * self.scale + shift

    def generate(self, x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = self(x)
        return x

    def freeze(self) -> str:
        return "the model's own"


@pytest.fixture
def model(target: Any) -> Any:
    return target.module(Model()).eval()


def test_it_is_an_instance_of_the_modules_class(target: Any, model: Any) -> None:
    g = target.capture(model)
    assert isinstance(g, Model)
    assert type(g).__name__ == "Model"
    assert list(g.state_dict()) == list(model.state_dict())
    assert g.linear is model.linear
    assert inspect.signature(g) == inspect.signature(model.forward)
    assert inspect.signature(g.forward) == inspect.signature(model.forward)


def test_a_method_that_calls_the_module_replays(target: Any, model: Any) -> None:
    g, x = target.capture(model), target.randn(2, 4)
    assert torch.allclose(g.generate(x, 5), model.generate(x, 5))
    assert g.report().replays == 4


def test_a_call_of_forward_replays_unless_there_are_hooks(target: Any, model: Any) -> None:
    g, x = target.capture(model), target.randn(2, 4)
    g.forward(x)
    assert torch.equal(g.forward(x), model(x))
    assert g.report().replays == 1
    g.register_forward_hook(lambda _module, _args, out: out + 1)
    assert torch.equal(g.forward(x) + 1, g(x))
    assert torch.equal(g(x), model(x))


def test_the_models_own_method_is_kept(target: Any, model: Any) -> None:
    g = target.capture(model)
    assert g.freeze() == "the model's own"
    g.rocsolid.freeze()
    assert g.report().frozen


def test_attributes_are_shared_in_both_directions(target: Any, model: Any) -> None:
    g, x = target.capture(model), target.randn(2, 4)
    g(x)
    g.scale = 3.0
    assert model.scale == 3.0
    assert torch.equal(g(x), model(x))
    model.scale = 4.0
    assert torch.equal(g(x), model(x))
    g.train()
    assert model.training
    assert model.linear.training


def test_it_can_be_a_child_of_another_module(target: Any, model: Any) -> None:
    parent = torch.nn.Module()
    parent.model = model
    keys = list(parent.state_dict())
    parent.model = target.capture(model)
    x = target.randn(2, 4)
    parent.model(x)
    assert list(parent.state_dict()) == keys
    parent.to(torch.float64)
    assert model.linear.weight.dtype is torch.float64
    assert torch.equal(parent.model(x.double()), model(x.double()))


def test_copies_have_their_own_weights_and_graphs(target: Any, model: Any) -> None:
    g, x = target.capture(model), target.randn(2, 4)
    g(x)
    for twin in (copy.deepcopy(g), pickle.loads(pickle.dumps(target.capture(model)))):  # noqa: S301 - our own
        assert isinstance(twin, Model)
        assert twin.linear.weight is not model.linear.weight
        twin.linear.weight.data.mul_(2)
        twin(x)
        assert torch.equal(twin(x), twin.rocsolid(x))
        assert not torch.equal(twin(x), g(x))
    shallow = copy.copy(g)
    shallow.scale = 9.0
    assert model.scale == 2.0
    assert shallow.linear is model.linear


def test_its_state_can_be_saved_and_loaded(target: Any, model: Any) -> None:
    g, x = target.capture(model), target.randn(2, 4)
    g(x)
    file = io.BytesIO()
    torch.save(g.state_dict(), file)
    file.seek(0)
    other = target.capture(target.module(Model()).eval())
    other(x)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), model(x))


def test_a_scripted_module_is_refused_because_its_attributes_cannot_be_watched() -> None:
    from rocsolid.api.capture import capture

    scripted = torch.jit.trace(torch.nn.Linear(4, 4), torch.ones(1, 4))
    g, x = capture(scripted, backend="record"), torch.randn(2, 4)
    for _ in range(3):
        assert torch.equal(g(x), scripted(x))
    assert "a scripted module, whose attributes are not Python objects" in str(g.report())


def test_a_module_that_was_never_called_says_so(target: Any, model: Any) -> None:
    assert "never called" in str(target.capture(model).report())
