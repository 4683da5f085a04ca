"""Modules that run in eager between the graphs of the rest: those of `eager_modules=`, and those that were found."""

import copy
import warnings
from typing import Any

import pytest

from rocsolid.errors import CaptureError, UsageError

pytest.importorskip("torch")
import torch

from rocsolid.runtime.capture import diagnosis
from rocsolid.runtime.capture.capture_once import SetAside
from rocsolid.runtime.capture.eager_segments import SegmentedGraph
from rocsolid.torchapi.dispatch import OperatorMode
from rocsolid.torchapi.graphs.capture_state import reported_as_capturing

pytestmark = pytest.mark.torch


class Router(torch.nn.Module):  # type: ignore[misc]
    """Branches on a value, which cannot be captured."""

    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum().item() > 0 else x * -3


class Pipeline(torch.nn.Module):  # type: ignore[misc]
    """A router between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.router, self.after = torch.nn.Linear(4, 4), Router(), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.after(self.router(self.before(x).relu() - 0.3)) + x


def test_eager_modules_run_in_eager_between_graphs(target: Any) -> None:
    model = target.module(Pipeline())
    whole = target.capture(model, eager_modules=())
    g = target.capture(model, eager_modules=["router"])
    signs = set()
    for _ in range(20):
        x = target.randn(2, 4)
        assert torch.allclose(g(x), model(x), atol=1e-6)
        whole(x)
        signs.add(float((model.before(x).relu() - 0.3).sum()) > 0)
    assert signs == {True, False}, "both branches were taken"
    assert g.report().replays == 19
    assert whole.report().replays == 0

    with pytest.raises(
        UsageError,
        match="eager_modules= names 'rooter', which is not a module of the function; it has: before, router, after",
    ):
        target.capture(model, eager_modules=["rooter"])(target.randn(2, 4))


class ChangesShape(torch.nn.Module):  # type: ignore[misc]
    """Returns as many rows as the tensor `rows` contains."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.tensor([2])  # a tensor, so that a change does not invalidate the graph

    def forward(self, x: Any) -> Any:
        return x[: int(self.rows)]


def test_an_eager_module_that_returns_another_shape_falls_back_to_eager(target: Any) -> None:
    changes = ChangesShape()
    model = torch.nn.Sequential(torch.nn.ReLU(), changes, torch.nn.ReLU())
    g, x = target.capture(model, eager_modules=[changes]), target.randn(4, 4)
    for _ in range(2):
        assert g(x).shape == (2, 4)
    changes.rows.fill_(3)
    assert g(x).shape == (3, 4)
    (refusal,) = g.report().refusals
    assert refusal.reason.value == "eager module"
    assert refusal.message.startswith("module `1` returned float32[3, 4]; during the capture it returned float32[2, 4]")


class CountsAndChangesShape(torch.nn.Module):  # type: ignore[misc]
    """Counts its calls in a buffer and draws random numbers before the eager module."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = ChangesShape()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return self.changes(x + torch.rand_like(x)) * self.calls


def test_a_call_that_falls_back_to_eager_writes_once(target: Any) -> None:
    model = target.module(CountsAndChangesShape())
    twin = copy.deepcopy(model)
    g, x = target.capture(model, eager_modules=["changes"]), target.randn(4, 4)
    for number in range(5):
        if number == 3:
            model.changes.rows.fill_(3)
            twin.changes.rows.fill_(3)
        torch.manual_seed(number)
        got, drawn_next = g(x), target.randn(1)
        torch.manual_seed(number)
        want = twin(x)
        assert torch.equal(model.calls, twin.calls)
        if number >= 3:  # in eager
            assert torch.equal(got, want)
            assert torch.equal(drawn_next, target.randn(1))
    # `rows` is in CPU memory, whose content is watched if the graph is on a GPU: the fourth call captures again.
    assert g.report().replays == (2 if target.backend == "record" else 3)


def test_an_eager_module_may_call_another_one(target: Any) -> None:
    model = target.module(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(Router()), torch.nn.ReLU()))
    g = target.capture(model, eager_modules=["1", "1.0"])
    for number in range(6):
        torch.manual_seed(number)  # is refused while a capture records
        x = target.randn(2, 4)
        assert torch.allclose(g(x), model(x), atol=1e-6)
    assert g.report().replays == 5


class Cache:
    """Grows with every call, as the KV cache of a language model."""

    def __init__(self) -> None:
        self.keys: Any = None


class Appends(torch.nn.Module):  # type: ignore[misc]
    """Appends to a cache."""

    def forward(self, x: Any, cache: Any) -> Any:
        cache.keys = x if cache.keys is None else torch.cat([cache.keys, x])
        return cache.keys.sum(0)


class WithCache(torch.nn.Module):  # type: ignore[misc]
    """Makes a cache in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = Appends()

    def forward(self, x: Any) -> Any:
        cache = Cache()
        return self.appends(x + 1, cache=cache) + 1


def test_an_eager_module_that_changes_an_object_is_a_refusal(target: Any) -> None:
    g, x = target.capture(WithCache(), eager_modules=["appends"]), target.randn(3, 4)
    for _ in range(3):
        assert torch.allclose(g(x), (x + 1).sum(0) + 1)
    (refusal,) = g.report().refusals
    assert refusal.message.startswith("module `appends` changes `arguments[1]['cache'].keys` in Python")


@pytest.mark.parametrize("eager_modules", [["appends"], "auto"])
def test_a_failure_between_graphs_that_the_function_catches_is_a_refusal(target: Any, eager_modules: Any) -> None:
    """What the function does after it is not recorded."""

    class Catches(WithCache):
        def forward(self, x: Any) -> Any:
            try:
                if eager_modules == "auto":
                    for _ in range(20):
                        assert bool(torch.isfinite(x).all())
                return super().forward(x + 1)
            except Exception:  # noqa: BLE001 - the point
                return x

    model = target.module(Catches())
    g, x = target.capture(model, eager_modules=eager_modules), target.randn(3, 4)
    for _ in range(3):
        assert torch.equal(g(x), model(x))
    (refusal,) = g.report().refusals
    expected = "module `appends` changes" if eager_modules != "auto" else "torch.isfinite(x).all()"
    assert expected in refusal.message


@pytest.mark.parametrize("on_error", ["eager", "raise"])
def test_a_check_in_which_an_eager_module_returns_something_else_is_a_refusal(target: Any, on_error: str) -> None:
    """Integers are not varied by the verification, so the second call is compared with eager."""

    class Number(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x, x.sum().item()

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.number = Number()

        def forward(self, x: Any) -> Any:
            x, number = self.number(x + 1)
            return x * number

    g = target.capture(Model(), eager_modules=["number"], on_error=on_error)
    g(torch.tensor([1, 2], device=target.device))
    x = torch.tensor([3, 4], device=target.device)
    if on_error == "raise":
        with pytest.raises(
            CaptureError, match="module `number` returned 9 in `result\\[1\\]`; during the capture it returned 5"
        ):
            g(x)
    else:
        assert g(x).tolist() == [36, 45]
    assert [refusal.reason.value for refusal in g.report().refusals] == ["eager module"]


def _replays_like_eager(target: Any, model: Any, g: Any, *shapes: tuple[int, ...]) -> None:
    for shape in shapes:
        x = target.randn(*shape)
        assert torch.allclose(g(x), model(x), atol=1e-6)


def test_a_module_that_waits_for_the_host_is_found(target: Any) -> None:
    model = target.module(Pipeline())
    g = target.capture(model)
    _replays_like_eager(target, model, g, *[(2, 4)] * 10)
    report = g.report()
    assert (report.replays, report.refusals) == (9, ())
    (found,) = report.workarounds
    assert (found.how, found.kind, found.modules) == ("eager", "Router", ("router",))
    assert "x.sum().item()" in found.why
    assert "test_eager_segments.py:" in found.location
    assert "in eager between graphs: Router `router`, because `x.sum().item()`" in str(report)
    assert "in eager between graphs: Router `router`" in str(g.explain(target.randn(2, 4)))

    forbidden = target.capture(model, eager_modules=())
    forbidden(target.randn(2, 4))
    assert [refusal.reason.value for refusal in forbidden.report().refusals] == ["host sync"]


def test_what_was_found_is_not_searched_again_for_another_shape(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.runtime.capture import capture_once

    captures = []
    plain = capture_once.run_capture

    def counted(*args: Any) -> Any:
        captures.append(1)
        return plain(*args)

    monkeypatch.setattr(capture_once, "run_capture", counted)
    model = target.module(Pipeline())
    g = target.capture(model)
    _replays_like_eager(target, model, g, (2, 4), (2, 4))
    assert len(captures) == 2  # whole, then in segments
    _replays_like_eager(target, model, g, (3, 4), (3, 4))
    assert len(captures) == 3
    assert g.report().replays == 2


def test_a_capture_without_a_comparison_is_not_split(target: Any) -> None:
    g = target.capture(target.module(Pipeline()), verify="off")
    g(target.randn(2, 4))
    assert [refusal.reason.value for refusal in g.report().refusals] == ["host sync"]


class ReadsShape(torch.nn.Module):  # type: ignore[misc]
    """Waits for the host in another way than a router."""

    def forward(self, x: Any) -> Any:
        return x + len(x.flatten().nonzero())


class Many(torch.nn.Module):  # type: ignore[misc]
    """Layers, some of which wait."""

    def __init__(self, *waiting: Any) -> None:
        super().__init__()
        linear = [torch.nn.Linear(4, 4) for _ in range(len(waiting) + 1)]
        self.layers = torch.nn.ModuleList([m for pair in zip(linear, waiting, strict=False) for m in pair])
        self.last = linear[-1]

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def test_all_modules_of_a_class_are_set_aside_at_once_and_several_classes_are_found(target: Any) -> None:
    model = target.module(Many(Router(), ReadsShape(), Router()))
    g = target.capture(model)
    _replays_like_eager(target, model, g, *[(2, 4)] * 5)
    report = g.report()
    assert report.replays == 4
    assert {found.kind: found.modules for found in report.workarounds} == {
        "Router": ("layers.1", "layers.5"),
        "ReadsShape": ("layers.3",),
    }


@pytest.mark.parametrize("on_error", ["eager", "raise"])
def test_where_most_of_the_model_would_run_in_eager_the_original_operation_is_refused(
    target: Any, on_error: str
) -> None:
    class Waits(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.first(x) if x.sum().item() > 0 else self.second(x)

    model = target.module(torch.nn.Sequential(torch.nn.Linear(4, 4), Waits()))
    g, x = target.capture(model, on_error=on_error), target.randn(2, 4)
    if on_error == "raise":
        with pytest.raises(CaptureError, match=r"`x\.sum\(\)\.item\(\)`"):
            g(x)
    else:
        assert torch.equal(g(x), model(x))
    (refusal,) = g.report().refusals
    assert "x.sum().item()" in refusal.message
    assert not g.report().workarounds


class Helper(torch.nn.Module):  # type: ignore[misc]
    """Has a method that waits, and is not called."""

    def choose(self, x: Any) -> Any:
        return x * 2 if x.sum().item() > 0 else x * -3


class CallsHelper(torch.nn.Module):  # type: ignore[misc]
    """Calls the method of another module."""

    def __init__(self) -> None:
        super().__init__()
        self.helper = Helper()

    def forward(self, x: Any) -> Any:
        return self.helper.choose(x)


def test_the_module_around_one_that_is_not_called_runs_in_eager(target: Any) -> None:
    model = target.module(Many(CallsHelper(), torch.nn.ReLU()))
    g = target.capture(model)
    _replays_like_eager(target, model, g, *[(2, 4)] * 5)
    (found,) = g.report().workarounds
    assert (found.kind, found.modules, g.report().replays) == ("CallsHelper", ("layers.1",), 4)
    assert "x.sum().item()" in found.why


class Cuts(torch.nn.Module):  # type: ignore[misc]
    """Returns as many rows as `counts` has in sum, padded to four by the module around it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counts", torch.tensor([1, 1]))

    def forward(self, x: Any) -> Any:
        return x[: int(self.counts.sum())]


class Pads(torch.nn.Module):  # type: ignore[misc]
    """Pads what `cuts` returns."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts = Cuts()

    def forward(self, x: Any) -> Any:
        rows = self.cuts(x)
        return torch.cat([rows, x.new_zeros(4 - len(rows), 4)])


def test_a_module_that_returns_another_shape_later_is_replaced_by_the_module_around_it(target: Any) -> None:
    pads = Pads()
    model = target.module(Many(pads, torch.nn.ReLU()))
    g = target.capture(model)
    _replays_like_eager(target, model, g, *[(4, 4)] * 3)
    assert [found.kind for found in g.report().workarounds] == ["Cuts"]
    pads.cuts.counts.fill_(2)
    _replays_like_eager(target, model, g, *[(4, 4)] * 3)
    assert [found.kind for found in g.report().workarounds] == ["Pads"]
    pads.cuts.counts.fill_(1)
    _replays_like_eager(target, model, g, *[(4, 4)] * 2)
    report = g.report()
    assert (report.captures, report.refusals) == (2, ())


def test_a_module_in_eager_is_not_told_that_it_is_captured_and_may_make_constants(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target.backend == "record":
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # it raises without a GPU

    class Asks(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            number = x.sum().item()
            if torch.cuda.is_current_stream_capturing():
                return x[:1]
            return x * torch.tensor([number, 2.0, 3.0, 4.0], device=x.device)

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.asks, self.last = torch.nn.Linear(4, 4), Asks(), torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            x = self.first(x) * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)
            x = self.last(self.asks(x))
            return x + torch.tensor([float(len(x)), 6.0, 7.0, 8.0], device=x.device)

    model = target.module(Model())
    g = target.capture(model)
    _replays_like_eager(target, model, g, *[(2, 4)] * 4)
    assert (g.report().replays, [found.kind for found in g.report().workarounds]) == (3, ["Asks"])


class ReturnsItsArgument(torch.nn.Module):  # type: ignore[misc]
    """Returns its argument, a part of it, its buffer or a new tensor, depending on values."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(4, 4))

    def forward(self, x: Any, number: Any) -> Any:
        return [x, x * 2, self.kept, x.flip(0), x[:1].expand(4, 4), x[1:2].expand(4, 4)][int(number.sum())]


class UsesBoth(torch.nn.Module):  # type: ignore[misc]
    """Uses what the module returns, and what it was passed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.returns, self.last = torch.nn.Linear(4, 4), ReturnsItsArgument(), torch.nn.Linear(4, 4)

    def forward(self, x: Any, number: Any) -> Any:
        x = self.first(x)
        return self.last(self.returns(x, number)) + x + self.returns.kept


@pytest.mark.parametrize("then", range(6))
@pytest.mark.parametrize("first", range(6))
def test_a_module_that_returns_its_argument_or_a_new_tensor(target: Any, first: int, then: int) -> None:
    """Integers are not varied by the verification, so only the later call is another one."""
    model = target.module(UsesBoth())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    for number in (first, first, then, first, then):
        x, index = target.randn(4, 4), torch.tensor([number], device=target.device)
        assert torch.allclose(g(x, index), twin(x, index), atol=1e-6)
        assert torch.equal(model.returns.kept, twin.returns.kept)
    if first == then:
        assert g.report().replays == 3  # the second call is compared with eager


def test_other_threads_call_modules_as_usual_during_a_capture(target: Any) -> None:
    import threading

    model = target.module(Pipeline())
    twin = copy.deepcopy(model)
    x = target.randn(2, 4)
    expected = twin(x)
    inside, ended = threading.Event(), threading.Event()
    results: list[Any] = []

    class Waits(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            inside.set()
            ended.wait(0.2)
            return x

    def call_router() -> None:
        inside.wait(5)
        with torch.no_grad():
            results.extend(model.router(x) for _ in range(20))
        ended.set()

    model.before = torch.nn.Sequential(model.before, Waits())
    g = target.capture(model)
    thread = threading.Thread(target=call_router)
    thread.start()
    for _ in range(3):
        assert torch.allclose(g(x), expected, atol=1e-6)
    thread.join()
    assert all(torch.equal(result, twin.router(x)) for result in results)
    assert g.report().replays == 2


def test_a_failed_attempt_leaves_python_values_as_they_were(target: Any) -> None:
    class Counts(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.router, self.last = torch.nn.Linear(4, 4), Router(), torch.nn.Linear(4, 4)
            self.state = {"calls": 0}

        def forward(self, x: Any) -> Any:
            self.state["calls"] = 1  # reset at the end, unless the capture fails
            x = self.last(self.router(self.first(x)))
            self.state["calls"] = 0
            return x

    model = target.module(Counts())
    g = target.capture(model)
    _replays_like_eager(target, model, g, *[(2, 4)] * 3)
    assert model.state == {"calls": 0}
    assert g.report().replays == 2


def test_experts_of_transformers_are_captured_in_a_form_that_does_not_wait(target: Any) -> None:
    """On a GPU `grouped_mm` in float32 waits, too. For many tokens that form copies too many weights."""
    pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    model = target.module(MixtralForCausalLM(MixtralConfig(**sizes, **heads)).eval())
    model.set_experts_implementation("eager" if target.backend == "record" else "grouped_mm")
    chosen = model.config._experts_implementation
    twin = copy.deepcopy(model)
    g = target.capture(model)
    for length, how in ((3, "batched_mm"), (20, "eager"), (4, "batched_mm")):
        for _ in range(4):
            ids = torch.randint(64, (1, length), device=target.device)
            got, want = (fn(ids, use_cache=False).logits for fn in (g, twin))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        found = g.explain(ids, use_cache=False).workarounds
        assert len(found) == 1
        assert found[0].startswith("captured as batched_mm" if how == "batched_mm" else "in eager between graphs")
        assert "MixtralExperts" in found[0]
    assert g.report().replays == 6
    assert model.config._experts_implementation == chosen
    model.set_experts_implementation("batched_mm" if target.backend == "record" else "eager")
    g(ids, use_cache=False)
    assert g.report().invalidated


class KeyCache:
    """Grows when it is used, as the KV cache of a language model."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.tokens = 0


KeyCache.__module__ = "transformers.cache_utils"  # as the classes that are taken apart


class Attends(torch.nn.Module):  # type: ignore[misc]
    """Changes a cache, and waits for the host."""

    def forward(self, x: Any, cache: KeyCache) -> Any:
        cache.keys.append(x * 2 if x.sum().item() > 0 else -x)
        cache.tokens += len(x)
        return torch.stack(cache.keys).sum(0)


class Decoder(torch.nn.Module):  # type: ignore[misc]
    """Two layers that share a cache, which is new in each call unless it is passed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        self.attends = torch.nn.ModuleList([Attends(), Attends()])

    def forward(self, x: Any, cache: Any = None) -> Any:
        cache = KeyCache() if cache is None else cache
        for linear, attends in zip(self.linear, self.attends, strict=False):
            x = attends(linear(x), cache)
        return self.linear[2](x) + cache.keys[0] * cache.tokens, cache


@pytest.mark.parametrize("passed", [False, True])
def test_an_eager_module_may_change_a_cache(target: Any, *, passed: bool) -> None:
    model = target.module(Decoder())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    for _ in range(5):
        x = target.randn(2, 4)
        caches = [KeyCache() for _ in "ab"] if passed else [None, None]
        (got, cache), (want, other) = g(x, caches[0]), twin(x, caches[1])
        assert torch.allclose(got, want, atol=1e-6)
        assert all(torch.allclose(a, b) for a, b in zip(cache.keys, other.keys, strict=True))
        assert cache.tokens == other.tokens == 4
        assert not passed or cache is caches[0]
    assert (g.report().replays, g.report().refusals) == (4, ())
    assert [found.kind for found in g.report().workarounds] == ["Attends"]


def test_a_wait_inside_the_handling_of_another_error_is_found(target: Any) -> None:
    class Handles(Pipeline):
        def forward(self, x: Any) -> Any:
            try:
                return x[99]
            except IndexError:
                return super().forward(x)

    model = target.module(Handles())
    g = target.capture(model)
    _replays_like_eager(target, model, g, *[(2, 4)] * 3)
    assert [found.kind for found in g.report().workarounds] == ["Router"]


def test_experts_count_as_one_module(target: Any) -> None:
    class Experts(torch.nn.ModuleList):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return self[int(x.sum() > 0)](x)

    class Moe(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.experts = Experts([torch.nn.Linear(4, 4) for _ in range(16)])

        def forward(self, x: Any) -> Any:
            return self.after(self.experts(self.before(x)))

    model = target.module(Moe())
    g = target.capture(model)
    _replays_like_eager(target, model, g, *[(2, 4)] * 4)
    assert (g.report().replays, [found.kind for found in g.report().workarounds]) == (3, ["Experts"])


def test_a_later_failure_is_refused_with_the_original_operation(target: Any) -> None:
    model = target.module(torch.nn.Sequential(torch.nn.Linear(4, 4), Cuts(), torch.nn.Linear(4, 4)))
    g, x = target.capture(model), target.randn(4, 4)
    for rows in (2, 2, 3, 3):
        model[1].counts.copy_(torch.tensor([rows - 1, 1]))
        assert torch.allclose(g(x), model(x), atol=1e-6)
    (refusal,) = g.report().refusals
    assert "int(self.counts.sum())" in refusal.message
    assert g.report().invalidated[0].startswith("module `1` returned")


class Asks(torch.nn.Module):  # type: ignore[misc]
    """Reads a mask in the function that is captured, as encoders of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any, mask: Any) -> Any:
        self.calls.add_(1)
        x = self.first(x) + torch.rand_like(x)
        if not bool(mask.all()):
            x = x * mask[:, None]
        return self.last(x) * int(mask.sum())


def test_values_that_python_reads_are_read_again_by_each_replay(target: Any) -> None:
    model = target.module(Asks())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    full = torch.ones(4, dtype=torch.int64, device=target.device)
    masks = [full, full, full, full, full * 0, full, full * 0, full]
    for number, mask in enumerate(masks):
        x = target.randn(4, 4)
        torch.manual_seed(number)
        got, drawn = g(x, mask.clone()), target.randn(1)
        torch.manual_seed(number)
        want = twin(x, mask.clone())
        assert torch.allclose(got, want, atol=1e-6), number
        assert torch.equal(drawn, target.randn(1))
        assert torch.equal(model.calls, twin.calls)
    report = g.report()
    (found,) = report.workarounds
    assert found.how == "read"
    assert "mask.all()" in found.why
    assert "reads values again in each call" in str(report)
    assert report.refusals == ()
    assert (report.replays, report.eager_calls["host sync"]) == (4, 2)  # the second call is compared with eager


def test_values_that_differ_in_most_calls_are_refused_with_the_original_operation(target: Any) -> None:
    model = target.module(Asks())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    for number in range(10):
        x, mask = target.randn(4, 4), torch.full((4,), number, device=target.device)
        torch.manual_seed(number)
        got = g(x, mask)
        torch.manual_seed(number)
        assert torch.allclose(got, twin(x, mask), atol=1e-4)
        assert torch.equal(model.calls, twin.calls)
    (refusal,) = g.report().refusals
    assert "mask.all()" in refusal.message
    assert g.report().eager_calls["host sync"] == 9


def test_a_value_that_depends_on_floats_is_not_kept(target: Any) -> None:
    """The verification varies floats, so it reads another value."""
    g = target.capture(lambda x: x * x.sum().item())
    for _ in range(3):
        x = target.randn(4)
        assert torch.allclose(g(x), x * x.sum().item())
    assert [refusal.reason.value for refusal in g.report().refusals] == ["host sync"]
    assert g.report().replays == 0


def test_modules_and_reads_with_nothing_between_them(target: Any) -> None:
    """Torch warns about each graph in which nothing was recorded."""

    class Reads(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            linear = [torch.nn.Linear(4, 4) for _ in range(3)]
            self.layers = torch.nn.ModuleList([Router(), Router(), *linear, Router()])

        def forward(self, x: Any, mask: Any, number: Any) -> Any:
            if torch.equal(input=mask, other=number) or bool(number):
                return x
            for layer in self.layers:
                x = layer(x)
            return x

    model = target.module(Reads())
    g = target.capture(model)
    mask, number = (torch.tensor([value], device=target.device) for value in (1, 0))
    for _ in range(6):
        x = target.randn(2, 4)
        assert torch.allclose(g(x, mask, number), model(x, mask, number), atol=1e-6)
    assert (g.report().replays, g.report().refusals) == (4, ())
    assert sorted(found.how for found in g.report().workarounds) == ["eager", "read"]
    assert torch.equal(g(x, number.clone(), number), x)
    assert torch.equal(g(x, number, mask), x)
    assert g.report().eager_calls["host sync"] == 2


def test_an_empty_graph_is_not_replayed_and_stays_open() -> None:
    """A later graph may use memory that it owns."""

    class Part:
        bytes = 0

        def __init__(self, nodes: Any) -> None:
            self.nodes = nodes
            self.calls: list[str] = []

        def replay(self) -> None:
            self.calls.append("replay")

        def close(self) -> None:
            self.calls.append("close")

        def dump(self, path: str) -> None:
            pass

    parts = [Part(0), Part(2), Part(None)]
    graph = SegmentedGraph(parts, None)
    graph.replay()
    assert [part.calls for part in parts] == [[], ["replay"], ["replay"]]
    graph.close()
    assert [part.calls[-1] for part in parts] == ["close"] * 3


def test_torch_does_not_warn_about_an_empty_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.runtime.capture.backends import device

    class Graph:
        def capture_end(self) -> None:
            warnings.warn("The CUDA Graph is empty. This usually means that", UserWarning, stacklevel=1)

        def replay(self) -> None:
            pass

    monkeypatch.setattr(device, "count_captured_nodes", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0, 0))
    session = device.DeviceSession(0, device.MemoryPool(), (), keep=False)
    session._graph = Graph()
    assert session.end().nodes == 0


class GpuWaits(OperatorMode):
    """Stands in for a GPU, with torch set to raise an error at every wait."""

    WAITS = ("aten::_local_scalar_dense", "aten::nonzero")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.mode: Any = "default"
        monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: self.mode)
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: setattr(self, "mode", mode))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(diagnosis, "is_sync_error", lambda error: "synchronizing" in str(error))

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.name().partition(".")[0] in self.WAITS and self.mode == "error":
            msg = "called a synchronizing CUDA operation"
            raise RuntimeError(msg)
        return func(*args, **kwargs)


def test_what_waits_is_found_behind_reads_and_modules_that_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    class Asks(Router):
        def forward(self, x: Any) -> Any:
            told.append(torch.cuda.is_current_stream_capturing())
            return super().forward(x)

    model = torch.nn.Sequential(Asks(), torch.nn.Linear(4, 4), ReadsShape())
    x, mask = torch.randn(2, 4), torch.ones(2)

    def found(**aside: Any) -> Any:
        with reported_as_capturing(), GpuWaits(monkeypatch):
            sync = diagnosis.find_sync(lambda: model(x) if bool(mask.all()) else x, SetAside(**aside))
        assert sync is not None
        return sync.operation, type(sync.module).__name__

    assert found() == found(modules={"0": model[0]}) == ("aten::_local_scalar_dense", "NoneType")
    assert found(checks_reads=True) == ("aten::nonzero", "ReadsShape")
    assert told == [True]
    assert found(checks_reads=True, modules={"0": model[0]}) == ("aten::nonzero", "ReadsShape")
    assert told == [True, False]


def test_what_waits_is_not_a_constant_that_the_graph_copies(target: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.router, self.last = torch.nn.Linear(4, 4), Router(), torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            x = self.first(x) * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)
            return self.last(self.router(x))

    model = target.module(Model())
    g = target.capture(model)
    _replays_like_eager(target, model, g, *[(2, 4)] * 4)
    (found,) = g.report().workarounds
    assert (g.report().replays, found.kind) == (3, "Router")
    assert "x.sum().item()" in found.why


def test_what_waits_behind_a_read_is_found(target: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.reads, self.last = torch.nn.Linear(4, 4), ReadsShape(), torch.nn.Linear(4, 4)

        def forward(self, x: Any, mask: Any) -> Any:
            x = self.first(x)
            if not bool(mask.all()):
                x = x * mask[:, None]
            return self.last(self.reads(x))

    model = target.module(Model())
    g = target.capture(model)
    mask = torch.ones(2, dtype=torch.int64, device=target.device)
    for _ in range(5):
        x = target.randn(2, 4)
        assert torch.allclose(g(x, mask), model(x, mask), atol=1e-5)
    assert sorted(found.kind for found in g.report().workarounds) == ["", "ReadsShape"]
    assert g.report().replays == 3  # the second call is compared with eager


def test_values_and_modules_in_one_call(target: Any) -> None:
    class Both(Asks):
        def __init__(self) -> None:
            super().__init__()
            self.router = Router()

        def forward(self, x: Any, mask: Any) -> Any:
            return super().forward(self.router(x), mask)

    model = target.module(Both())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    mask = torch.ones(4, dtype=torch.int64, device=target.device)
    for number in range(6):
        x = target.randn(4, 4)
        torch.manual_seed(number)
        got = g(x, mask)
        torch.manual_seed(number)
        assert torch.allclose(got, twin(x, mask), atol=1e-6)
    assert (g.report().replays, g.report().refusals) == (4, ())
    assert sorted(found.how for found in g.report().workarounds) == ["eager", "read"]
