"""KV caches among the arguments: taken apart, and left as eager leaves them."""

import copy
from typing import Any

import pytest

from rocsolid.errors import CaptureError

pytest.importorskip("torch")
import torch

import rocsolid as rs

pytestmark = pytest.mark.torch
SLOTS = 16


class Layer:
    """A layer of a static cache: its memory is made by the first call, its length is a tensor, and it is written in place."""

    def __init__(self) -> None:
        self.keys: Any = None
        self.length = torch.tensor(0)
        self.is_ready = False

    def update(self, x: Any) -> Any:
        if not self.is_ready:
            self.keys = x.new_zeros(SLOTS, x.shape[1])
            self.length = self.length.to(x.device)
            self.is_ready = True
        self.keys.index_copy_(0, torch.arange(len(x), device=x.device) + self.length, x)
        self.length.add_(len(x))
        return self.keys


class GrowingLayer:
    """A layer of a dynamic cache: every call appends to it."""

    def __init__(self) -> None:
        self.keys: Any = None

    def update(self, x: Any) -> Any:
        self.keys = x if self.keys is None else torch.cat([self.keys, x])
        return self.keys


class Cache:
    """A list of layers, which are made when they are needed; it counts the calls until it is full, and notes which layers were used."""

    def __init__(self, layer: Any = Layer) -> None:
        self.layers: list[Any] = []
        self.kind = layer
        self.used: dict[int, bool] = {}

    def update(self, x: Any, index: int) -> Any:
        while len(self.layers) <= index:
            self.layers.append(self.kind())
        self.used[index] = True
        return self.layers[index].update(x)


for kind in (Layer, GrowingLayer, Cache):
    kind.__module__ = "transformers.cache_utils"  # as the classes that are taken apart


class Model(torch.nn.Module):  # type: ignore[misc]
    """Two layers with a cache each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])

    def forward(self, x: Any, cache: Any) -> dict[str, Any]:
        for index, layer in enumerate(self.layers):
            x = layer(x) + cache.update(x, index).sum(0)
        return {"x": x, "cache": cache}


def state(cache: Any) -> Any:
    """What a cache contains, for comparisons."""
    layers = [{k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in vars(x).items()} for x in cache.layers]
    return layers, [type(x) for x in cache.layers], cache.used, cache.kind


def step(fn: Any, twin: Any, x: Any, cache: Any, other: Any) -> None:
    """Call both, and compare results and caches."""
    got, want = fn(x, cache), twin(x.clone(), other)
    torch.testing.assert_close(got["x"], want["x"])
    assert got["cache"] is cache
    assert_same(cache, other)


def assert_same(cache: Any, other: Any) -> None:
    ours, theirs = state(cache), state(other)
    assert ours[1:] == theirs[1:]
    for mine, wanted in zip(ours[0], theirs[0], strict=True):
        assert list(mine) == list(wanted)
        assert mine == pytest.approx(wanted) if mine["keys"] is None else True
    for mine, wanted in zip(cache.layers, other.layers, strict=True):
        for name, value in vars(wanted).items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(getattr(mine, name), value)


def test_a_static_cache_is_left_as_eager_leaves_it(target: Any) -> None:
    model = target.module(Model())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    for _ in range(3):
        cache, other = Cache(), Cache()
        for _ in range(4):
            step(g, twin, target.randn(2, 4), cache, other)
            layers, keys = cache.layers, cache.layers[0].keys
        assert cache.layers is layers
        assert cache.layers[0].keys is keys
    report = g.report()
    assert not report.refusals
    assert report.captures == 2  # a call with a new cache, and with one that was used
    assert report.replays == 12 - 3  # the first replay with other integers is compared with eager


def test_the_first_call_may_fill_a_cache_to_its_last_place(target: Any) -> None:
    """On a GPU, a run that writes behind the end would end all use of the GPU."""
    model = target.module(Model())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    for tokens in ((SLOTS,), (SLOTS - 1, 1), (SLOTS - 2, 2)):
        for _ in range(2):
            cache, other = Cache(), Cache()
            for count in tokens:
                step(g, twin, target.randn(count, 4), cache, other)
    assert not g.report().refusals


def test_a_new_cache_gets_memory_of_its_own(target: Any) -> None:
    model = target.module(Model())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    caches = [(Cache(), Cache()) for _ in range(4)]
    for cache, other in caches:
        step(g, twin, target.randn(2, 4), cache, other)
    for cache, other in caches:
        assert_same(cache, other)
    assert g.report().replays == 3


def test_a_growing_cache_is_refused_by_name_and_then_not_tried_again(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rocsolid.runtime.capture import capture_once, captured

    model = target.module(Model())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    first_runs = []
    plain = capture_once.FirstRun

    def counted(*args: Any) -> Any:
        first_runs.append(1)
        return plain(*args)

    monkeypatch.setattr(captured, "FirstRun", counted)
    for _ in range(2):
        cache, other = Cache(GrowingLayer), Cache(GrowingLayer)
        for _ in range(4):
            step(g, twin, target.randn(2, 4), cache, other)
    assert len(first_runs) == 2  # with a new cache, which is captured, and with one that was used
    (refusal,) = g.report().refusals
    assert refusal.message.startswith("the cache `cache.layers[0].keys` has another size or number after each call")
    assert "StaticCache" in refusal.message
    assert g.report().eager_calls["argument"] == 5
    assert g.report().graphs[0].replays == 1


def test_a_cache_that_the_function_also_reaches_is_refused(target: Any) -> None:
    model = target.module(Model())
    kept = Cache()
    model(target.randn(1, 4), kept)
    model.kept = kept
    g = target.capture(model)
    twin, other = copy.deepcopy(model), copy.deepcopy(kept)
    g(target.randn(1, 4), Cache())
    for _ in range(3):
        step(g, twin, target.randn(1, 4), kept, other)
    assert any("`kept` is also an argument" in refusal.message for refusal in g.report().refusals)


def test_a_cache_that_the_function_also_reaches_does_not_use_the_graph_of_others(target: Any) -> None:
    model = target.module(Model())
    model.kept = Cache()
    model(target.randn(1, 4), model.kept)
    g = target.capture(model)
    twin, own, other = copy.deepcopy(model), Cache(), Cache()
    for _ in range(3):
        step(g, twin, target.randn(1, 4), own, other)
    replays = g.report().replays
    step(g, twin, target.randn(1, 4), model.kept, twin.kept)
    assert g.report().replays == replays
    assert g.report().eager_calls["shared memory"] == 1


def test_two_caches_that_become_one(target: Any) -> None:
    model = target.module(Model())
    twin = copy.deepcopy(model)

    def both(fn: Any) -> Any:
        def run(x: Any, first: Any, second: Any) -> Any:
            return fn(fn(x, first)["x"], second)["x"]

        return run

    g, eager = target.capture(both(model)), both(twin)
    pairs = [[Cache() for _ in range(4)] for _ in range(3)]
    for first, second, other_first, other_second in pairs:
        x = target.randn(1, 4)
        torch.testing.assert_close(g(x, first, second), eager(x, other_first, other_second))
        assert_same(first, other_first)
        assert_same(second, other_second)
    cache, other, x = Cache(), Cache(), target.randn(1, 4)
    for _ in range(2):
        torch.testing.assert_close(g(x, cache, cache), eager(x, other, other))
        assert_same(cache, other)
    assert g.report().replays == 2


def test_a_changed_weight_or_method_leaves_the_cache_advanced_once(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = target.module(Model())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    cache, other, plain = Cache(), Cache(), Layer.update
    for number in range(6):
        if number == 3:
            for each in (model, twin):
                each.layers[0] = target.module(torch.nn.Linear(4, 4))
                each.layers[0].weight.fill_(0.5)
                each.layers[0].bias.fill_(0.5)
        if number == 5:
            monkeypatch.setattr(Layer, "update", lambda self, x: plain(self, x * 2))
        step(g, twin, target.randn(1, 4), cache, other)
    _, last = g.report().invalidated
    assert "update" in last


def test_periodic_checks_leave_the_cache_advanced_once(target: Any) -> None:
    model = target.module(Model())
    twin = copy.deepcopy(model)
    g = target.capture(model, verify=rs.every(2))
    cache, other = Cache(), Cache()
    for _ in range(8):
        step(g, twin, target.randn(1, 4), cache, other)
    for _ in range(5):
        step(g, twin, target.randn(1, 4), Cache(), Cache())
    assert g.report().eager_calls["check"] >= 4


class Cuts(torch.nn.Module):  # type: ignore[misc]
    """Returns as many rows as `rows` has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.tensor([2]))

    def forward(self, x: Any) -> Any:
        return x[: int(self.rows.sum())]


def test_a_failed_segment_leaves_the_cache_advanced_once(target: Any) -> None:
    class Segments(Model):
        def __init__(self) -> None:
            super().__init__()
            self.cuts = Cuts()

        def forward(self, x: Any, cache: Any) -> Any:
            result = super().forward(x, cache)
            return {**result, "x": self.cuts(result["x"])}

    model = target.module(Segments())
    twin = copy.deepcopy(model)
    g = target.capture(model, eager_modules=["cuts"])
    cache, other = Cache(), Cache()
    for number in range(5):
        if number == 3:
            for each in (model, twin):
                each.cuts.rows.fill_(1)
        step(g, twin, target.randn(2, 4), cache, other)
    (refusal,) = g.report().refusals
    assert refusal.message.startswith("module `cuts` returned float32[1, 4]")


@pytest.mark.parametrize("outputs", ["alias", "out"])
def test_results_in_graph_memory_are_refused_for_a_new_cache(target: Any, outputs: str) -> None:
    model = target.module(Model())
    twin = copy.deepcopy(model)

    def result(model: Any) -> Any:
        return lambda x, cache: model(x, cache)["x"]

    g, eager = target.capture(result(model), outputs=outputs), result(twin)
    out = {"out": target.randn(1, 4)} if outputs == "out" else {}
    cache, other = Cache(), Cache()
    for _ in range(4):
        x = target.randn(1, 4)
        torch.testing.assert_close(g(x, cache, **out), eager(x, other))
        assert_same(cache, other)
    (refusal,) = g.report().refusals
    assert "a later call would overwrite it" in refusal.message
    assert g.report().replays == 1


def test_a_cache_in_the_memory_of_the_graph_needs_no_copy(target: Any) -> None:
    model = target.module(Model())
    twin = copy.deepcopy(model)
    g = target.capture(model)
    cache, other = Cache(), Cache()
    for _ in range(2):
        step(g, twin, target.randn(1, 4), cache, other)
    buffer, mine = g.inputs(target.randn(1, 4), cache)
    for name, value in vars(cache.layers[0]).items():
        if isinstance(value, torch.Tensor):
            assert getattr(mine.layers[0], name) is not value
    for own, theirs in zip(mine.layers, other.layers, strict=True):
        own.keys.copy_(theirs.keys)
        own.length.copy_(theirs.length)
    keys = mine.layers[0].keys
    for _ in range(3):
        buffer.normal_()
        step(g, twin, buffer, mine, other)
        assert mine.layers[0].keys is keys


def test_warm_leaves_a_cache_as_it_was(target: Any) -> None:
    model = target.module(Model())
    g = target.capture(model)
    cache = Cache()
    g.warm([((target.randn(1, 4), cache), {})])
    assert state(cache) == state(Cache())
    used = Cache()
    model(target.randn(1, 4), used)
    before = state(used)
    g.warm([((target.randn(1, 4), used), {})])
    assert state(used) == before
    twin = copy.deepcopy(model)
    other = copy.deepcopy(used)
    step(g, twin, target.randn(1, 4), cache, Cache())
    step(g, twin, target.randn(1, 4), used, other)
    assert g.report().replays + g.report().eager_calls.get("check", 0) == 2


def test_a_cache_inside_other_arguments(target: Any) -> None:
    model = target.module(Model())
    twin = copy.deepcopy(model)
    g = target.capture(lambda inputs: model(inputs["x"], inputs["cache"]))
    cache, other = Cache(), Cache()
    for _ in range(4):
        step(lambda x, c: g({"x": x, "cache": c}), twin, target.randn(1, 4), cache, other)
    assert g.report().replays == 1


def test_a_cache_of_static_is_returned_itself(target: Any) -> None:
    model = target.module(Model())
    twin = copy.deepcopy(model)
    g = target.capture(model, static=("cache",))
    cache, other = Cache(), Cache()
    for _ in range(6):
        step(g, twin, target.randn(1, 4), cache, other)
    assert g.report().replays == 5
    another, twin_cache = Cache(), Cache()
    for _ in range(3):
        step(g, twin, target.randn(1, 4), another, twin_cache)


def test_training_with_a_cache_is_refused(target: Any) -> None:
    model = target.module(Model())
    g = target.capture(model, backward=True, on_error="raise")
    with torch.enable_grad(), pytest.raises(CaptureError, match="a cache is an argument"):
        g(target.randn(1, 4), Cache())


def _llama(target: Any) -> Any:
    pytest.importorskip("transformers.models.llama.modeling_llama")
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
    config = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    return target.module(LlamaForCausalLM(config).eval())


@pytest.mark.parametrize("kind", ["static", "dynamic", "dynamic with buckets"])
def test_the_caches_of_transformers(target: Any, kind: str) -> None:
    """Tiny models of other architectures are in tests/programs/test_transformers.py."""
    model = _llama(target)
    twin = copy.deepcopy(model)
    from transformers import DynamicCache, StaticCache

    buckets = {"past_key_values": rs.Bucket(dim=2, sizes=[8, 16])} if "buckets" in kind else {}
    g = target.capture(model, buckets=buckets)
    for _ in range(2):
        cache, other = (
            StaticCache(config=model.config, max_cache_len=16) if kind == "static" else DynamicCache() for _ in "ab"
        )
        ids = torch.randint(64, (2, 5), device=target.device)
        mask = torch.ones_like(ids)
        mask[0, :2] = 0
        for _ in range(9):
            given = {"attention_mask": mask.clone(), "use_cache": True}
            if kind == "static":
                given["attention_mask"] = torch.nn.functional.pad(mask, (0, 16 - mask.shape[1]), value=1)
            got = g(ids, past_key_values=cache, **given)
            want = twin(ids, past_key_values=other, **given)
            assert got.past_key_values is cache
            torch.testing.assert_close(got.logits, want.logits, rtol=1e-4, atol=1e-4)
            for mine, theirs in zip(cache.layers, other.layers, strict=True):
                assert type(mine) is type(theirs)
                torch.testing.assert_close(mine.keys, theirs.keys, rtol=1e-4, atol=1e-4)
                torch.testing.assert_close(mine.values, theirs.values, rtol=1e-4, atol=1e-4)
                assert mine.get_seq_length() == theirs.get_seq_length()
            ids = want.logits[:, -1:].argmax(-1)
            if kind != "static":  # each length of the mask needs a graph
                mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
    report = g.report()
    predicted = g.explain(ids, past_key_values=cache, **given)
    assert predicted.action == ("eager" if kind == "dynamic" else "replay")
    if kind == "dynamic":
        assert report.replays == 0  # the prompt is compared with eager, and the cache grows
        assert "rs.Bucket(dim=2" in report.refusals[0].message
    elif kind == "static":
        assert not report.refusals
        assert (report.captures, report.replays) == (2, 18 - 2 - 2)
    else:
        assert not report.refusals
        assert report.captures == 3
        assert report.replays == 18 - 3 - 3


def test_a_size_is_only_used_after_a_comparison_with_the_dynamic_cache(target: Any) -> None:
    """A model whose result depends on the size of the cache is refused."""
    model = _llama(target)
    from transformers import DynamicCache

    twin = copy.deepcopy(model)

    def forward(model: Any) -> Any:
        def run(ids: Any, past_key_values: Any) -> Any:
            result = model(ids, past_key_values=past_key_values).logits
            return result + past_key_values.layers[0].keys.shape[-2]

        return run

    g = target.capture(forward(model), buckets={"past_key_values": rs.Bucket(dim=2, sizes=[16])})
    eager = forward(twin)
    cache, other = DynamicCache(), DynamicCache()
    ids = torch.randint(64, (1, 3), device=target.device)
    for _ in range(4):
        torch.testing.assert_close(g(ids, cache), eager(ids, other), rtol=1e-4, atol=1e-4)
        ids = ids[:, :1]
        assert cache.get_seq_length() == other.get_seq_length()
    assert any("a static cache of 16 tokens changes the result" in refusal.message for refusal in g.report().refusals)
