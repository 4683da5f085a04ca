"""Weights that are updated, replaced, moved; state that warm-ups must not disturb."""

import weakref
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


@pytest.fixture
def model(place: Any) -> Any:
    layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)]
    return place.module(torch.nn.Sequential(*layers)).eval()


def agree(g: Any, model: Any, x: Any) -> bool:
    return bool(torch.equal(g(x), model(x)))


def test_updates_in_place_just_work(place: Any, model: Any) -> None:
    g, x = place.capture(model), place.randn(2, 4)
    g(x)
    updates: list[Any] = [
        lambda: model[0].weight.data.mul_(2),
        lambda: model[2].bias.add_(1),
        lambda: model.load_state_dict({name: torch.ones_like(p) for name, p in model.state_dict().items()}),
    ]
    for update in updates:
        update()
        assert agree(g, model, x)
    assert g.report().replays == 3
    assert not g.report().invalidated


def _rematerialise(model: Any) -> None:
    model[0].weight.data = model[0].weight.data * 2


def _assign(model: Any) -> None:
    model.load_state_dict({name: torch.ones_like(p) for name, p in model.state_dict().items()}, assign=True)


def _replace_module(model: Any) -> None:
    model[0] = torch.nn.Linear(4, 8, device=model[0].weight.device)


def _add_adapter(model: Any) -> None:
    plain = model[0].forward
    low = torch.randn(4, 8, device=model[0].weight.device)
    model[0].forward = lambda x: plain(x) + x @ low


def _half_way(model: Any) -> None:
    def swap() -> None:
        model[0].weight.data = model[0].weight.data + 1
        msg = "the adapter does not fit"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="does not fit"):
        swap()


def _hook(model: Any) -> None:
    model[0].register_forward_hook(lambda _module, _args, out: out * 3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_rematerialise, "0.weight lies elsewhere in memory"),
        (_assign, "0.weight was replaced"),
        (_replace_module, "0 was replaced"),
        (_add_adapter, "0 had"),
        (_half_way, "0.weight lies elsewhere in memory"),
        (_hook, "0 had 0 forward_hooks and has 1"),
    ],
)
def test_what_was_replaced_is_noticed_before_the_next_result(place: Any, model: Any, change: Any, named: str) -> None:
    g, x = place.capture(model), place.randn(2, 4)
    g(x)
    assert agree(g, model, x)
    change(model)

    assert agree(g, model, x)
    assert named in g.report().invalidated[0]
    assert agree(g, model, x)
    assert g.report().replays == 2


def test_another_precision_is_noticed(place: Any, model: Any) -> None:
    g, x = place.capture(model), place.randn(2, 4)
    g(x)
    model.bfloat16()
    assert agree(g, model, x.bfloat16())
    assert agree(g, model, x.bfloat16())
    model.float()
    assert agree(g, model, x)
    assert g.report().invalidated


def test_old_weights_are_freed_when_their_graph_goes(place: Any, model: Any) -> None:
    g, x = place.capture(model), place.randn(2, 4)
    g(x)
    old = weakref.ref(model[0].weight.untyped_storage())
    held = weakref.ref(model[0].weight)
    _assign(model)
    assert agree(g, model, x)

    assert held() is None
    assert old() is None


def test_a_number_the_function_closes_over_is_read_again(place: Any) -> None:
    scale = 2.0

    def scaled(x: Any) -> Any:
        return x * scale

    g, x = place.capture(scaled), place.randn(3)
    g(x)
    assert torch.equal(g(x), x * 2)
    scale = 5.0
    assert torch.equal(g(x), x * 5)
    assert g.report().invalidated == ("scale was 2.0 and is 5.0",)
    scale = float("5")  # the same value in another object changes nothing
    assert torch.equal(g(x), x * 5)
    assert len(g.report().invalidated) == 1


class Stateful(torch.nn.Module):  # type: ignore[misc]
    """Everything a call may leave behind in tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.norm = torch.nn.BatchNorm1d(4)
        self.cache = [torch.zeros(3, 4)]

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        self.cache[0].copy_(self.cache[0].roll(1, 0))
        self.cache[0][0].copy_(x[0])
        return self.norm(x) + self.cache[0].sum(0) * self.calls


def test_state_is_as_after_one_eager_call_each(place: Any) -> None:
    module, twin = place.module(Stateful()).train(), place.module(Stateful()).train()
    module.cache, twin.cache = ([torch.zeros(3, 4, device=place.device)] for _ in range(2))
    g = place.capture(module)
    for _ in range(4):
        x = place.randn(5, 4)
        assert torch.allclose(g(x), twin(x))
        assert torch.equal(module.calls, twin.calls)
        assert torch.equal(module.cache[0], twin.cache[0])
        assert torch.allclose(module.norm.running_mean, twin.norm.running_mean)
        assert torch.equal(module.norm.num_batches_tracked, twin.norm.num_batches_tracked)
    assert g.report().replays == 3
    assert "calls" in g.report().graphs[0].mutates


class Journal(torch.nn.Module):  # type: ignore[misc]
    """Keeps count in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.count = 0

    def forward(self, x: Any) -> Any:
        self.lines.append("called")
        self.count += 1
        return x * 2


def test_what_a_call_does_in_python_is_noticed_and_done_once(place: Any) -> None:
    journal = Journal()
    g, x = place.capture(journal), place.randn(3)
    for number in range(1, 4):
        assert torch.equal(g(x), x * 2)
        assert (journal.count, len(journal.lines)) == (number, number)
    (refusal,) = g.report().refusals
    assert refusal.reason.value == "side effect"
    assert "count" in refusal.detail
    assert "the length of lines" in refusal.detail


def test_what_is_set_up_on_the_first_call_is_no_side_effect(place: Any) -> None:
    class Lazy(torch.nn.Module):  # type: ignore[misc]
        table: Any = None

        def forward(self, x: Any) -> Any:
            if self.table is None:
                self.table = torch.arange(x.shape[-1], device=x.device, dtype=x.dtype)
            return x + self.table

    g, x = place.capture(Lazy()), place.randn(3)
    g(x)
    assert torch.equal(g(x), x + torch.arange(3, device=place.device))
    assert g.report().replays == 1


def test_warming_ahead_leaves_everything_as_it_was(place: Any) -> None:
    module = place.module(Stateful()).train()
    module.cache = [torch.zeros(3, 4, device=place.device)]
    g = place.capture(module)
    random = torch.get_rng_state()
    inputs = [place.randn(5, 4), place.randn(7, 4)]
    torch.set_rng_state(random)
    g.warm([((x,), {}) for x in inputs])

    assert float(module.calls) == 0
    assert torch.equal(torch.get_rng_state(), random)
    assert [graph.key["argument 'x'"].partition("[")[2][:1] for graph in g.report().graphs] == ["7", "5"]
    g.freeze()
    g(inputs[0])
    assert g.report().replays == 1
