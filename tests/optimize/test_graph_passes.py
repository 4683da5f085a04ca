"""Graph passes: linear layers of one input become one matrix product, and changed weights are never ignored."""

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from tests.optimize import small_models
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import rocsolid as rs
from rocsolid.model.form import Form
from rocsolid.model.plan import Decision
from rocsolid.model.setting import Channel
from rocsolid.ops import linear_act, split_matmul
from rocsolid.ops.shipped.device import Gpu
from rocsolid.ops.shipped.operators import ATTENTION as ATTENTION_OPERATOR
from rocsolid.ops.split_matmul import best_splits
from rocsolid.optimize import graph_passes
from rocsolid.optimize.graph_passes import (
    AUTOTUNED_PRODUCTS,
    FUSED_ACTIVATIONS,
    MERGED_PROJECTIONS,
    OWN_ATTENTION,
    PACKED_ATTENTION,
    PATCH_PRODUCTS,
    SPLIT_PRODUCTS,
    pass_options,
)
from rocsolid.optimize.passes import fused_activations, own_attention
from rocsolid.optimize.passes import split_products as split_products_module
from rocsolid.optimize.passes.autotuned_products import benchmark_products
from rocsolid.optimize.passes.fused_activations import fuse_activations
from rocsolid.optimize.passes.library_products import LIBRARIES
from rocsolid.optimize.passes.merge_projections import SharedInputs, join_weights, merge_projections
from rocsolid.optimize.passes.own_attention import use_own_attention
from rocsolid.optimize.passes.packed_attention import write_out_attention
from rocsolid.optimize.passes.patch_products import write_out_patches
from rocsolid.optimize.passes.split_products import has_few_rows, split_products
from rocsolid.optimize.settings_search import TriedSetting
from rocsolid.torchapi.inductor.graph_pass import graph_pass

pytestmark = pytest.mark.torch
WIDTH, HEADS = 32, 4
seen_targets: list[str] = []


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    seen_targets.clear()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


class Attention(nn.Module):  # type: ignore[misc]
    """Attention as in BERT (equal widths, biases) or Llama (fewer heads of keys and values, no biases)."""

    def __init__(self, *, kv_heads: int = HEADS, bias: bool = True) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.key = nn.Linear(WIDTH, WIDTH // HEADS * kv_heads, bias=bias)
        self.value = nn.Linear(WIDTH, WIDTH // HEADS * kv_heads, bias=bias)
        self.out = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x: Any) -> Any:
        batch, tokens, _ = x.shape
        q, k, v = (
            layer(x).view(batch, tokens, -1, WIDTH // HEADS).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.out(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))


class BertLayer(nn.Module):  # type: ignore[misc]
    """One group of three layers with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = Attention(), nn.LayerNorm(WIDTH)
        self.wide, self.narrow, self.last_norm = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Any) -> Any:
        x = self.norm(x + self.attention(x))
        return self.last_norm(x + self.narrow(functional.gelu(self.wide(x))))


class LlamaLayer(nn.Module):  # type: ignore[misc]
    """Two groups without biases: of unequal widths, and gate and up."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(kv_heads=2, bias=False)
        self.norm, self.last_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        y = self.last_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def record_products(graph: Any) -> None:
    for node in graph.nodes:
        if str(node.target) in ("aten.mm.default", "aten.addmm.default"):
            sources = [str(x.target) for x in node.args[-1].all_input_nodes]
            seen_targets.append("merged" if any("joined_weights" in name for name in sources) else "product")


def compiled(model: Any) -> Any:
    # Without the cache, in which torch would find the graph of another test, and not run the pass.
    options = {"post_grad_custom_post_pass": graph_pass(record_products), "fx_graph_cache": False}
    return torch.compile(model, options={**pass_options(dict.fromkeys([MERGED_PROJECTIONS], True)), **options})


def packed(model: Any, *args: Any) -> int:
    """Make the weights adjacent; return the number of groups."""
    shared_inputs = SharedInputs()
    with shared_inputs.watch(model):
        model(*args)
    return shared_inputs.make_adjacent()


def products() -> tuple[int, int]:
    """How many products the last graph has: merged ones and others."""
    merged = sum("merged" in target for target in seen_targets)
    return merged, len(seen_targets) - merged


@pytest.mark.parametrize(
    ("layer", "groups", "expected"), [(BertLayer, 1, (1, 3)), (LlamaLayer, 2, (2, 2))], ids=["bert", "llama"]
)
def test_layers_of_one_input_are_merged(layer: Any, groups: int, expected: tuple[int, int]) -> None:
    model, x = layer().eval(), torch.randn(2, 5, WIDTH)
    names = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    before = model(x)

    assert packed(model, x) == groups
    assert torch.equal(model(x), before)
    assert {name: tuple(value.shape) for name, value in model.state_dict().items()} == names
    torch.testing.assert_close(compiled(model)(x), before)
    assert products() == expected
    assert packed(model, x) == groups  # a second time: they are adjacent already


def step(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with torch.enable_grad():
        model(torch.randn(1, 3, WIDTH)).square().sum().backward()
    optimizer.step()


def load(model: Any) -> None:
    other = type(model)()
    model.load_state_dict(other.state_dict())


def load_assigning(model: Any) -> None:
    model.load_state_dict(type(model)().state_dict(), assign=True)


def write_through_data(model: Any) -> None:
    model.attention.key.weight.data.copy_(torch.randn(*model.attention.key.weight.shape))


def replace_data(model: Any) -> None:
    model.attention.value.weight.data = torch.randn(*model.attention.value.weight.shape)


def replace_parameter(model: Any) -> None:
    model.attention.query.weight = nn.Parameter(torch.randn(*model.attention.query.weight.shape))


def replace_first(model: Any) -> None:
    model.attention.query.weight.data = torch.randn(*model.attention.query.weight.shape)


@pytest.mark.parametrize(
    "change", [step, load, load_assigning, write_through_data, replace_data, replace_parameter, replace_first]
)
@pytest.mark.parametrize("layer", [BertLayer, LlamaLayer])
def test_changed_weights_are_used(layer: Any, change: Callable[[Any], None]) -> None:
    model, x = layer().eval(), torch.randn(2, 5, WIDTH)
    packed(model, x)
    function = compiled(model)
    before = function(x)

    change(model)

    expected = model(x)
    assert not torch.allclose(expected, before, atol=1e-3)
    torch.testing.assert_close(function(x), expected)


def test_weights_that_something_else_refers_to_stay_where_they_are() -> None:
    model, x = BertLayer(), torch.randn(1, 3, WIDTH)
    kept = model.attention.key.weight.data  # written later, and the model must see it
    address = model.attention.key.weight.data_ptr()

    assert packed(model, x) == 0
    assert model.attention.key.weight.data_ptr() == address
    kept.zero_()
    assert not model.attention.key.weight.any()
    torch.testing.assert_close(compiled(model)(x), model(x))
    assert products() == (0, 6)


def test_tied_and_repeated_weights_are_right() -> None:
    class Tied(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.a(x) + 1, self.b(x) + 1, self.a(x) * 2

    model, x = Tied(), torch.randn(3, WIDTH)
    assert packed(model, x) == 0
    torch.testing.assert_close(compiled(model)(x), model(x))
    assert products() == (0, 3)


class Pair(nn.Module):  # type: ignore[misc]
    """Two layers of one input."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Any) -> Any:
        return self.first(x) + 1, self.second(x) + 1


def test_layers_of_different_kinds_are_not_merged() -> None:
    x = torch.randn(3, WIDTH)
    model = Pair(nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8, bias=False))
    assert packed(model, x) == 0
    torch.testing.assert_close(compiled(model)(x), model(x))
    assert products() == (0, 2)

    seen_targets.clear()
    half = Pair(nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8).bfloat16())
    half.second.register_forward_pre_hook(lambda _, args: (args[0].bfloat16(),))
    packed(half, x)
    torch.testing.assert_close(compiled(half)(x), half(x))
    assert products() == (0, 2)


class Writes(nn.Module):  # type: ignore[misc]
    """Two layers of one input, between which something happens to it."""

    def __init__(self, change: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.change = change

    def forward(self, x: Any) -> Any:
        x, other = x * 1.0, x * 2.0
        first = self.first(x)
        self.change(x, other)
        return first + 1, self.second(x) + other


def set_item(x: Any, _: Any) -> None:
    x[0] = 0.0


def add_in_place(x: Any, _: Any) -> None:
    x += 1.0


def relu_in_place(x: Any, _: Any) -> None:
    functional.relu(x, True)


def write_out(x: Any, other: Any) -> None:
    torch.mul(other, 2.0, out=x)


def read(x: Any, other: Any) -> None:
    torch.sin(x + other)


@pytest.mark.parametrize("change", [set_item, add_in_place, relu_in_place, write_out, torch.Tensor.add_, read])
def test_layers_are_merged_only_if_nothing_is_written_between_them(change: Callable[[Any, Any], None]) -> None:
    model, x = Writes(change), torch.randn(3, WIDTH)
    packed(model, x.clone())
    for result, expected in zip(rewritten(merge_projections, model)(x.clone()), model(x.clone()), strict=True):
        torch.testing.assert_close(result, expected)
    assert seen("linear") == (1 if change is read else 2), seen_targets


def test_results_whose_strides_the_model_uses_are_not_parts_of_a_wider_one() -> None:
    class Strided(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

        def forward(self, x: Any) -> Any:
            first, second = (layer(x) for layer in self.layers)
            return first.as_strided((2, 3), (first.stride(0), 1)) + 1, second + 1

    model, x = Strided(), torch.randn(3, WIDTH)
    packed(model, x)
    for result, expected in zip(rewritten(merge_projections, model)(x), model(x), strict=True):
        torch.testing.assert_close(result, expected)
    assert seen("linear") == 2


def test_products_with_weights_that_are_not_transposed_stay() -> None:
    class Conv1D(nn.Module):  # type: ignore[misc]
        """As in GPT-2."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList(torch.randn(WIDTH, 8) for _ in range(2))
            self.bias = nn.Parameter(torch.randn(8))

        def forward(self, x: Any) -> Any:
            return [torch.addmm(self.bias, x, weight) + 1 for weight in self.weights]

    model, x = Conv1D(), torch.randn(3, WIDTH)
    torch.testing.assert_close(compiled(model)(x), model(x))
    assert products() == (0, 2)


def test_lora_layers_are_right() -> None:
    class Lora(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.base, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4, bias=False)
            self.up = nn.Linear(4, WIDTH, bias=False)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.up(self.down(x))

    model, x = Pair(Lora(), Lora()), torch.randn(3, WIDTH)
    packed(model, x)
    function = compiled(model)
    torch.testing.assert_close(function(x), model(x))
    assert products() == (2, 2)  # the two bases, which have biases, and the two small ones
    model.first.down.weight.add_(1.0)
    torch.testing.assert_close(function(x), model(x))


def test_results_keep_their_strides() -> None:
    class Flat(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, width) for width in (8, 4, 6, 6))

        def forward(self, x: Any) -> Any:
            flat, returned, first, second = (layer(x) for layer in self.layers)
            return flat.view(-1) + 1, returned.view(1, 3, 4).transpose(1, 2), first * second

    model, x = Flat(), torch.randn(3, WIDTH)
    packed(model, x)
    for result, expected in zip(compiled(model)(x), model(x), strict=True):
        torch.testing.assert_close(result, expected)
        assert result.stride() == expected.stride()
    assert products()[0] == 1


def test_a_compiled_training_step_is_right() -> None:
    model, x = BertLayer(), torch.randn(2, 5, WIDTH)
    packed(model, x)
    function = compiled(model)
    with torch.enable_grad():
        model(x).square().sum().backward()
        expected = {name: p.grad.clone() for name, p in model.named_parameters()}
        model.zero_grad()
        function(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], msg=name)


def test_sizes_can_change() -> None:
    model = LlamaLayer()
    packed(model, torch.randn(1, 4, WIDTH))
    function = torch.compile(model, dynamic=True, options=pass_options(dict.fromkeys([MERGED_PROJECTIONS], True)))
    for tokens in (4, 7, 9):
        x = torch.randn(1, tokens, WIDTH)
        torch.testing.assert_close(function(x), model(x))


def test_copies_of_the_model_are_independent() -> None:
    model, x = BertLayer(), torch.randn(1, 3, WIDTH)
    packed(model, x)
    twin, loaded = copy.deepcopy(model), pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    before = model(x)
    for other in (twin, loaded):
        for parameter in other.parameters():
            parameter.zero_()
    assert torch.equal(model(x), before)


def test_a_pass_has_an_id_for_the_caches_of_torch() -> None:
    first, second = graph_pass(merge_projections), graph_pass(merge_projections)
    assert first == second
    assert hash(first) == hash(second)
    assert first.uuid() == second.uuid()
    assert first.uuid() != graph_pass(record_products).uuid()
    assert pickle.loads(pickle.dumps(first)) == first  # noqa: S301 - our own bytes


def test_joined_weights_are_a_view_if_they_are_adjacent() -> None:
    joined = torch.ops.rocsolid.joined_weights.default
    whole = torch.randn(6, 8)
    apart, adjacent = [torch.randn(4, 8), torch.randn(2, 8)], [whole[:4], whole[4:]]
    assert torch.equal(joined(apart), torch.cat(apart))
    assert joined(adjacent).data_ptr() == whole.data_ptr()
    assert torch.equal(joined(adjacent), whole)
    assert joined(adjacent[::-1]).data_ptr() != whole.data_ptr()
    torch.library.opcheck(joined, (apart,), test_utils=("test_schema", "test_faketensor"))


PASSES_ONLY = [
    TriedSetting(Decision(id=name, value=True, channel=Channel.SCOPE, why="", profile="optimize"), joint=True)
    for name in (MERGED_PROJECTIONS, OWN_ATTENTION, FUSED_ACTIVATIONS, SPLIT_PRODUCTS)
]


def test_only_weights_that_nothing_but_products_read_are_joined_without_a_copy() -> None:
    def products(x: Any, a: Any, b: Any, c: Any) -> Any:
        returned, written = torch.cat([a, b]), torch.cat([a, c])
        c.add_(1.0)
        return (
            functional.linear(x, torch.cat([a, b])),
            functional.linear(x, written),
            returned,
            x @ torch.cat([a, b], 1),
        )

    x, weights = torch.randn(3, 4), [torch.randn(4, 4) for _ in range(3)]
    graph = make_fx(torch.func.functionalize(products), tracing_mode="fake")(x, *weights)
    join_weights(graph.graph)
    graph.recompile()
    targets = [str(n.target) for n in graph.graph.nodes]
    assert targets.count("rocsolid.joined_weights.default") == 1
    copies = [weight.clone() for weight in weights]
    for result, expected in zip(graph(x, *weights), products(x, *copies), strict=True):
        torch.testing.assert_close(result, expected)


def test_optimize_tries_merged_projections(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("rocsolid.api.optimize._tried_settings", lambda *_, **__: PASSES_ONLY)
    model, x = LlamaLayer().eval(), torch.randn(2, 5, WIDTH)
    report = rs.optimize(model, x, artefacts=tmp_path).report()

    tried = [result for result in report.forms if MERGED_PROJECTIONS in result.settings]
    assert [result.label for result in tried] == ["compiled, merged_projections=True"]
    assert tried[0].form is Form.COMPILED
    assert tried[0].timing is not None
    assert tried[0].why == ""


def test_optimize_does_not_try_it_without_layers_of_one_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("rocsolid.api.optimize._tried_settings", lambda *_, **__: PASSES_ONLY)
    report = rs.optimize(nn.Linear(4, 4), torch.randn(2, 4), artefacts=tmp_path).report()

    assert not any(MERGED_PROJECTIONS in result.settings for result in report.forms)


def record(graph: Any) -> None:
    seen_targets.extend(str(node.target) for node in graph.nodes if node.op == "call_function")


def compiled_with(option: str, rewrite: Callable[[Any], None], function: Any, **options: Any) -> Any:
    passes = {option: graph_pass(rewrite, record), "fx_graph_cache": False}
    return torch.compile(function, options=passes, **options)


def rewritten(rewrite: Callable[[Any], None], function: Any) -> Any:
    """The function with a rewritten graph, run in eager: a rewrite before autograd needs no compiler."""

    def backend(module: Any, _: Any) -> Any:
        rewrite(module.graph)
        record(module.graph)
        module.graph.lint()
        module.recompile()
        return module.forward

    return torch.compile(function, backend=backend)


def seen(name: str) -> int:
    return sum(name in target for target in seen_targets)


def suits_a_gpu(x: Any, weight: Any, _: str) -> bool:
    return x.dtype == weight.dtype and x.dtype in (torch.float16, torch.bfloat16) and x.shape[0] <= 256


@pytest.fixture
def large_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passes treat the CPU as a GPU that runs our kernels."""
    for module in (split_matmul, own_attention):
        monkeypatch.setattr(module, "gpu", lambda _: Gpu(32, 132, is_rdna=False))
    monkeypatch.setattr(own_attention, "attention_supports", lambda *_: True)
    for module in (fused_activations, split_products_module):
        monkeypatch.setattr(module, "suits", suits_a_gpu)
    monkeypatch.setattr(graph_passes, "suits_fusing", suits_a_gpu)


class Narrow(nn.Module):  # type: ignore[misc]
    """A feed-forward part with few rows, as in BERT, and with a weight that is not transposed, as in GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(32, 1024), nn.Linear(1024, 32, bias=False)
        self.plain, self.bias = nn.Parameter(torch.randn(1024, 32) / 32), nn.Parameter(torch.randn(32))
        self.norm = nn.LayerNorm(32)

    def forward(self, x: Any) -> Any:
        inner = functional.gelu(self.wide(x))
        rows = inner.view(-1, 1024)
        return self.norm(x + self.narrow(inner) + torch.addmm(self.bias, rows, self.plain).view_as(x))


@pytest.mark.usefixtures("large_gpu")
def test_products_with_few_rows_are_split() -> None:
    model, x = Narrow().eval().bfloat16(), torch.randn(2, 5, 32).bfloat16()
    fast = compiled_with("post_grad_custom_pre_pass", split_products, model)
    error = (fast(x) - model(x)).float().abs().max()

    assert error < 4e-2  # two roundings of bfloat16
    assert seen("split_matmul") == 2
    assert seen("linear_act") == 1, "the wide product fills the GPU without"
    assert seen("aten.mm") + seen("aten.addmm") == 0


@pytest.mark.usefixtures("large_gpu")
def test_products_that_fill_the_gpu_are_not_split() -> None:
    rows, inner, columns = 64, 1024, 64
    fine = best_splits(rows, inner, columns, torch.device("cpu"))
    assert fine == 8
    assert best_splits(257, inner, columns, torch.device("cpu")) == 1  # many rows
    assert best_splits(rows, 200, columns, torch.device("cpu")) == 1  # a short inner dimension
    assert best_splits(rows, inner, 8192, torch.device("cpu")) == 1  # many columns
    assert best_splits(0, inner, columns, torch.device("cpu")) == 1
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    assert not has_few_rows(a, b), "float32 is not computed by matrix units"
    assert has_few_rows(a.half(), b.half())
    assert not has_few_rows(torch.empty(257, inner).half(), b.half())
    assert not has_few_rows(a.half(), torch.empty(inner, 8200).half())
    fast = compiled_with("post_grad_custom_pre_pass", split_products, torch.mm, dynamic=True)
    fast(a.half(), b.half())
    assert seen("split_matmul") == 0, "with sizes that change, nothing is known about the number of rows"


def test_the_parts_are_those_of_the_product() -> None:
    a, b = torch.randn(3, 10), torch.randn(10, 4)
    for splits in (1, 3, 4, 12):
        parts = torch.ops.rocsolid.split_matmul(a, b, splits)
        assert parts.shape == (splits, 3, 4)
        torch.testing.assert_close(parts.sum(0), a @ b)
    torch.library.opcheck(torch.ops.rocsolid.split_matmul.default, (a.bfloat16(), b.bfloat16(), 2))


class Attends(nn.Module):  # type: ignore[misc]
    """Attention of few queries to keys and values that are put together from two tensors."""

    def forward(self, q: Any, k: Any, v: Any, earlier: Any, mask: Any = None) -> Any:
        keys, values = torch.cat([earlier, k], 2), torch.cat((earlier, v), dim=-2)
        attended = functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=0.3)
        return attended.transpose(1, 2).flatten(2)


@pytest.mark.usefixtures("large_gpu")
@pytest.mark.parametrize("masked", [False, True])
def test_attention_reads_keys_that_are_put_together_where_they_are(masked: bool) -> None:  # noqa: FBT001
    q, k, v = torch.randn(3, 2, 4, 6, 16).bfloat16()
    earlier = torch.randn(2, 4, 9, 16).bfloat16()
    mask = torch.rand(2, 1, 6, 15) > 0.3 if masked else None
    model = Attends()
    fast = rewritten(use_own_attention, model)

    torch.testing.assert_close(fast(q, k, v, earlier, mask), model(q, k, v, earlier, mask), rtol=3e-2, atol=3e-2)
    assert seen("rocsolid.attention") == 1
    assert seen("cat") == 0


@pytest.mark.usefixtures("large_gpu")
def test_what_the_model_writes_is_kept() -> None:
    class WritesState(nn.Module):  # type: ignore[misc]
        def forward(self, q: Any, count: Any) -> Any:
            count.add_(1)
            keys = torch.cat([q, q], 2)
            q.mul_(2.0)  # after it was copied to the keys
            return functional.scaled_dot_product_attention(q, keys, torch.cat([q, q], 2))

    q, model = torch.randn(1, 4, 6, 16).bfloat16(), WritesState()
    count, expected_count = torch.zeros(()), torch.zeros(())
    expected = model(q.clone(), expected_count)
    result = rewritten(use_own_attention, model)(q.clone(), count)
    torch.testing.assert_close(result, expected, rtol=3e-2, atol=3e-2)
    assert count == expected_count == 1
    assert seen("rocsolid.attention") == 1


@pytest.mark.usefixtures("large_gpu")
def test_attention_that_our_kernel_does_not_compute_stays() -> None:
    q = torch.randn(1, 4, 6, 16).bfloat16()
    vit = torch.randn(1, 12, 197, 16).bfloat16()
    long = torch.randn(1, 12, 1300, 16).bfloat16()
    few_heads = torch.randn(1, 2, 6, 16).bfloat16()
    suits = own_attention.suits_own_attention
    assert suits((q, q, q), {})
    assert suits((vit, vit, vit), {}), "24 blocks for 132 multiprocessors"
    assert suits((long, long, long, torch.ones(1, 1300, dtype=torch.bool)), {})
    assert suits((q, few_heads, few_heads), {"enable_gqa": True})
    assert not suits((long, long, long), {}), "flash attention fills the GPU"
    assert not suits((q, few_heads, few_heads), {})
    assert not suits((q, q, q), {"dropout_p": 0.1})
    assert not suits((q[0], q[0], q[0]), {})
    assert not suits((q.float(), q.float(), q.float()), {})
    assert not suits((q, q, q, torch.ones(6, 6, dtype=torch.bfloat16, requires_grad=True)), {})
    assert not suits((q, q, q), {"a_parameter_of_a_later_torch": 1})


def additive(visible: Any, hidden: float) -> Any:
    return torch.where(visible, 0.0, hidden).bfloat16()


MASKS: dict[str, Callable[[Any], Any]] = {
    "bool": small_models.causal_mask,
    "minus infinity": lambda x: additive(small_models.causal_mask(x), float("-inf")),
    "smallest number": lambda x: additive(small_models.causal_mask(x), torch.finfo(torch.bfloat16).min),
    "two causal ones": lambda x: small_models.causal_mask(x) & small_models.causal_mask(x),
    "nothing hidden": lambda x: torch.ones(1, 1, 1, x.shape[1], dtype=torch.bool, device=x.device),
    "some more hidden": lambda x: small_models.causal_mask(x) & (torch.arange(x.shape[1]) != 1),
    "half visible": lambda x: additive(small_models.causal_mask(x), -1.0),
    "made by vmap": lambda x: torch.vmap(lambda i: torch.arange(x.shape[1]) <= i)(torch.arange(x.shape[1]))[None, None],
    "depends on the input": lambda x: small_models.causal_mask(x) & (x[:, None, :, :1] < 100),
    "random": lambda x: small_models.causal_mask(x) & (torch.rand(x.shape[1]) < 2),
}


@pytest.mark.usefixtures("large_gpu")
@pytest.mark.parametrize("kind", MASKS)
def test_masks_that_are_built_from_positions_are_recognised(kind: str) -> None:
    def attend(x: Any) -> Any:
        heads = x.unflatten(2, (2, -1)).transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=MASKS[kind](x))

    masks: list[tuple[bool, bool]] = []

    def rewrite(graph: Any) -> None:
        use_own_attention(graph)
        masks.extend((n.args[4], n.args[5] is not None) for n in graph.nodes if n.target is ATTENTION_OPERATOR)

    x = torch.randn(1, 5, 32).bfloat16()
    torch.testing.assert_close(rewritten(rewrite, attend)(x), attend(x), rtol=3e-2, atol=3e-2)
    expected = {"nothing hidden": (False, False), **dict.fromkeys(list(MASKS)[:4], (True, False))}
    assert masks == [expected.get(kind, (False, True))]


def test_a_mask_that_is_written_to_is_not_evaluated() -> None:
    def attend(x: Any) -> Any:
        mask = small_models.causal_mask(x).clone()
        mask.view(-1)[7] = True
        return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    x = torch.randn(1, 5, 5, 8)
    fast = rewritten(use_own_attention, attend)
    torch.testing.assert_close(fast(x), attend(x))


@pytest.mark.usefixtures("large_gpu")
def test_attention_for_which_torch_has_a_kernel_without_mask_loses_the_mask() -> None:
    def attend(x: Any) -> Any:
        return functional.scaled_dot_product_attention(x, x, x, attn_mask=small_models.causal_mask(x[:, 0]))

    calls: list[Any] = []

    def rewrite(graph: Any) -> None:
        use_own_attention(graph)
        calls.extend(n.kwargs for n in graph.nodes if "scaled_dot_product" in str(n.target))

    x = torch.randn(1, 140, 5, 8)  # in float32, which our kernel does not get
    torch.testing.assert_close(rewritten(rewrite, attend)(x), attend(x))
    assert [(call["attn_mask"], call["is_causal"]) for call in calls] == [(None, True)]


@pytest.mark.usefixtures("large_gpu")
def test_repeated_heads_of_keys_and_values_are_read_where_they_are() -> None:
    model, x = small_models.LlamaLayer(64, 4, 64, 2).eval().bfloat16(), torch.randn(2, 5, 64).bfloat16()
    torch.testing.assert_close(rewritten(use_own_attention, model)(x), model(x), rtol=5e-2, atol=5e-2)
    assert seen("rocsolid.attention") == 1
    assert seen("expand") == 0, "neither of keys and values nor of the mask"


class TorchAttention(nn.Module):  # type: ignore[misc]
    """torch's own attention module."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, **options)

    def forward(self, x: Any, **options: Any) -> Any:
        seen_tokens, _ = self.attention(x, x, x, need_weights=False, **options)
        return seen_tokens


class ViewsResult(TorchAttention):
    """Its result has to be contiguous."""

    def forward(self, x: Any, **options: Any) -> Any:
        return super().forward(x, **options).view(-1) + x.flatten()


@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bias": False}])
@pytest.mark.parametrize("kind", [TorchAttention, ViewsResult])
def test_attention_of_torch_reads_packed_queries_where_they_are(kind: Any, options: dict[str, bool]) -> None:
    model, x = kind(**options).eval(), torch.randn(3, 5, WIDTH)
    if kind is ViewsResult and "batch_first" in options:
        pytest.skip("torch's result is no contiguous one there")
    result, expected = rewritten(write_out_attention, model)(x), model(x)
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride() or kind is TorchAttention
    assert seen("scaled_dot_product") > 0
    assert seen("contiguous") <= 1, seen_targets  # of the result


@pytest.mark.usefixtures("large_gpu")
@pytest.mark.parametrize("options", [{"batch_first": True}, {"norm_first": True, "activation": "gelu"}])
def test_an_encoder_layer_of_torch_is_written_out(options: dict[str, Any]) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, **{"batch_first": True, **options}).eval()
    model = nn.Sequential(layer, nn.LayerNorm(WIDTH))
    x = torch.randn(3, 5, WIDTH)

    torch.testing.assert_close(rewritten(write_out_attention, model)(x), model(x))
    assert seen("scaled_dot_product_attention") == 1, seen_targets

    def rewrite(graph: Any) -> None:
        for one in (write_out_attention, use_own_attention, fuse_activations):
            one(graph)

    seen_targets.clear()
    torch._dynamo.reset()
    model, x = model.bfloat16(), x.bfloat16()
    torch.testing.assert_close(rewritten(rewrite, model)(x), model(x), rtol=5e-2, atol=5e-2)
    assert seen("rocsolid.attention") == 1, seen_targets
    assert seen("linear_act") == ("activation" in options), "ReLU is not one of its activations"


def test_other_attention_of_torch_stays() -> None:
    model, x = TorchAttention().eval(), torch.randn(3, 5, WIDTH)
    mask = torch.rand(3, 3) > 0.3
    mask.fill_diagonal_(False)

    def masked(x: Any) -> Any:
        return model(x, attn_mask=mask)

    torch.testing.assert_close(rewritten(write_out_attention, masked)(x), masked(x))
    assert seen("multi_head_attention_forward") == 1


class Gated(nn.Module):  # type: ignore[misc]
    """A feed-forward part with a gate: from two layers, or from the halves of one."""

    def __init__(self, *, halves: bool, bias: bool) -> None:
        super().__init__()
        self.halves = nn.Linear(WIDTH, 96, bias=bias) if halves else None
        self.gate, self.up = (nn.Linear(WIDTH, 48, bias=bias) for _ in range(2))

    def forward(self, x: Any) -> Any:
        if self.halves is not None:
            gate, up = self.halves(x).chunk(2, dim=-1)
            return up * functional.silu(gate)
        return functional.silu(self.gate(x)) * self.up(x)


class Activated(nn.Module):  # type: ignore[misc]
    """A layer and an activation."""

    def __init__(self, activation: Callable[[Any], Any]) -> None:
        super().__init__()
        self.wide, self.activation = nn.Linear(WIDTH, 48), activation

    def forward(self, x: Any) -> Any:
        return self.activation(self.wide(x)) + 1


def written_out_gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


def fused(model: Any, x: Any) -> list[str]:
    """Return the activations that were fused into layers; checks the results."""
    found: list[str] = []

    def rewrite(graph: Any) -> None:
        fuse_activations(graph)
        found.extend(n.args[3] for n in graph.nodes if n.target is linear_act.LINEAR_ACT)

    packed(model, x)
    torch.testing.assert_close(rewritten(rewrite, model)(x), model(x), rtol=3e-2, atol=3e-2)
    return found


@pytest.mark.usefixtures("large_gpu")
@pytest.mark.parametrize(
    ("activation", "name"),
    [
        (functional.gelu, ["gelu"]),
        (nn.GELU("tanh"), ["gelu_tanh"]),
        (written_out_gelu, ["gelu_tanh"]),
        (functional.silu, ["silu"]),
        (nn.SiLU(inplace=True), ["silu"]),
        (lambda x: x * torch.sigmoid(x), ["silu"]),
        (lambda x: x * torch.sigmoid(1.702 * x), []),
        (torch.tanh, []),
        (lambda x: functional.gelu(x) + x, []),
        (lambda x: functional.gelu(x.view(-1, 5, 24, 2)).flatten(2), []),
    ],
)
def test_activations_are_fused_into_their_layers(activation: Any, name: list[str]) -> None:
    x = torch.randn(2, 5, WIDTH).bfloat16()
    assert fused(Activated(activation).eval().bfloat16(), x) == name


@pytest.mark.usefixtures("large_gpu")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("halves", [False, True])
def test_gates_are_fused_into_their_layers(halves: bool, bias: bool) -> None:  # noqa: FBT001
    model = Gated(halves=halves, bias=bias).eval().bfloat16()
    assert fused(model, torch.randn(2, 5, WIDTH).bfloat16()) == ["silu_mul"]


@pytest.mark.usefixtures("large_gpu")
def test_a_layer_whose_weight_is_not_transposed_is_fused() -> None:
    model = small_models.GptLayer(WIDTH, HEADS, 64).eval().bfloat16()
    assert fused(model, torch.randn(1, 5, WIDTH).bfloat16()) == ["gelu_tanh"]


@pytest.mark.usefixtures("large_gpu")
def test_layers_that_are_not_suited_are_not_fused() -> None:
    model = Activated(functional.gelu).eval()
    assert fused(model, torch.randn(2, 5, WIDTH)) == [], "float32"
    assert fused(model.bfloat16(), torch.randn(257, WIDTH).bfloat16()) == [], "many rows"
    with torch.enable_grad():
        assert fused(model, torch.randn(2, 5, WIDTH).bfloat16()) == [], "gradients"
    apart = Gated(halves=False, bias=False).bfloat16()
    apart.kept = apart.gate.weight.data  # so the weights cannot be adjacent
    assert fused(apart.eval(), torch.randn(2, 5, WIDTH).bfloat16()) == ["silu"]


class Products(nn.Module):  # type: ignore[misc]
    """One product with few rows, and what uses it."""

    def __init__(self, use: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.use = nn.Linear(1024, 32), use

    def forward(self, x: Any) -> Any:
        return self.use(self.layer(x))


@pytest.mark.usefixtures("large_gpu")
@pytest.mark.parametrize(
    ("use", "split"),
    [
        (lambda y: y + 1, 1),
        (lambda y: functional.layer_norm(y.view(-1, 8), (8,)), 1),
        (lambda y: torch.cat([-y[..., :16], y[..., 16:]], -1), 1),
        (lambda y: y, 0),
        (lambda y: y @ y.t(), 0),
        (lambda y: (y + 1, y.view(2, 32, 5) @ y.view(2, 5, 32)), 0),
        (lambda y: functional.scaled_dot_product_attention(*[y.view(1, 2, 10, 16)] * 3), 0),
    ],
    ids=["pointwise", "norm", "cat", "returned", "product", "both", "attention"],
)
def test_products_are_split_only_if_their_sum_needs_no_kernel(use: Callable[[Any], Any], split: int) -> None:
    model, x = Products(use).eval().bfloat16(), torch.randn(10, 1024).bfloat16()
    fast = compiled_with("post_grad_custom_pre_pass", split_products, model)
    torch.testing.assert_close(fast(x), model(x), rtol=5e-2, atol=5e-2)
    assert seen("split_matmul") == split
    assert (seen("linear_act") > 0) is (split == 0), "otherwise the product is computed whole"
    assert seen("aten.addmm") == 0


PATCHES: dict[str, tuple[nn.Module, Any, bool]] = {
    "patches of a picture": (nn.Conv2d(3, 8, 4, stride=4), torch.randn(2, 3, 12, 8), True),
    "channels last": (
        nn.Conv2d(3, 8, 2, stride=2),
        torch.randn(2, 3, 4, 8).to(memory_format=torch.channels_last),
        True,
    ),
    "without bias": (nn.Conv2d(3, 8, (2, 1), stride=(2, 1), bias=False), torch.randn(1, 3, 4, 5), True),
    "sound": (nn.Conv1d(2, 8, 4, stride=4), torch.randn(2, 2, 8), True),
    "video": (nn.Conv3d(2, 8, (1, 2, 2), stride=(1, 2, 2)), torch.randn(1, 2, 3, 4, 4), True),
    "windows that overlap": (nn.Conv2d(3, 8, 3, stride=2), torch.randn(1, 3, 8, 8), False),
    "an edge that is left out": (nn.Conv2d(3, 8, 4, stride=4), torch.randn(1, 3, 9, 8), False),
    "padding": (nn.Conv2d(3, 8, 2, stride=2, padding=1), torch.randn(1, 3, 4, 4), False),
    "groups": (nn.Conv2d(4, 8, 2, stride=2, groups=2), torch.randn(1, 4, 4, 4), False),
    "one element": (nn.Conv2d(3, 8, 1), torch.randn(1, 3, 4, 4), False),
    "transposed": (nn.ConvTranspose2d(3, 8, 2, stride=2), torch.randn(1, 3, 4, 4), False),
}


@pytest.mark.parametrize("kind", PATCHES)
def test_convolutions_whose_windows_do_not_overlap_become_products(kind: str) -> None:
    layer, x, changed = PATCHES[kind]
    model, x = copy.deepcopy(layer).bfloat16(), x.bfloat16()
    weights = dict(model.named_parameters())

    def convolution(x: Any, weights: Any) -> Any:
        return torch.func.functional_call(model, weights, (x,))

    def patches(x: Any, weights: Any) -> Any:
        return convolution(x, weights).flatten(2).transpose(1, 2)

    exact = copy.deepcopy(model).double()(x.double())
    for function, wanted in ((convolution, exact), (patches, exact.flatten(2).transpose(1, 2))):
        code = traced(function, x, weights)
        expected = code(x, weights)
        write_out_patches(code.graph)
        code.recompile()
        result = code(x, weights)
        assert ("aten.convolution" not in code.code) is changed
        assert (result.double() - wanted).norm() <= 1.1 * (expected.double() - wanted).norm()
        assert (result.shape, result.stride()) == (expected.shape, expected.stride())


def test_products_of_patches_are_compiled() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.Flatten(2)).bfloat16(), torch.randn(2, 3, 8, 8).bfloat16()
    fast = compiled_with("post_grad_custom_pre_pass", write_out_patches, model)
    torch.testing.assert_close(fast(x), model(x), rtol=2e-2, atol=2e-2)
    assert seen("convolution") == 0
    assert seen("aten.addmm") == 1


def traced(function: Callable[..., Any], *args: Any) -> Any:
    return make_fx(function, tracing_mode="fake")(*args)


def test_the_largest_products_are_those_whose_kernels_are_benchmarked() -> None:
    def products(x: Any, square: Any, wide: Any, bias: Any) -> Any:
        return x @ square, x @ square, torch.addmm(bias, x, wide), x[:, :4] @ square[:4, :4]

    args = torch.randn(8, 64), torch.randn(64, 64), torch.randn(64, 256), torch.randn(256)
    graph = traced(products, *args)
    benchmark_products(graph.graph)
    targets = [str(n.target) for n in graph.graph.nodes if "mm" in str(n.target)]
    assert targets == [
        *["rocsolid.benchmarked_mm.default"] * 2,
        "rocsolid.benchmarked_addmm.default",
        "aten.mm.default",
    ]
    graph.recompile()
    for result, expected in zip(graph(*args), products(*args), strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("library", LIBRARIES)
def test_products_can_be_computed_by_another_library(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []
    state = {"library": "default", "enabled": False, "tuning": True}

    def preferred(name: str | None = None) -> str:
        state["library"] = name or state["library"]
        chosen.extend([name] if name else [])
        return str(state["library"])

    def switch(name: str) -> Callable[[bool], None]:
        def set_to(value: bool) -> None:  # noqa: FBT001
            state[name] = value
            chosen.append((name, value))

        return set_to

    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", preferred)
    for name, function in (
        ("is_enabled", lambda: state["enabled"]),
        ("tuning_is_enabled", lambda: state["tuning"]),
        ("enable", switch("enabled")),
        ("tuning_enable", switch("tuning")),
    ):
        monkeypatch.setattr(torch.cuda.tunable, name, function)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    before = dict(state)

    def products(x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight, torch.addmm(bias, x, weight), torch.addmm(x, x, weight)

    args = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
    graph = traced(products, *args)
    LIBRARIES[library](graph.graph)
    graph.recompile()
    for result, expected in zip(graph(*args), products(*args), strict=True):
        torch.testing.assert_close(result, expected)
    assert sum("library_product" in str(n.target) for n in graph.graph.nodes) == 2
    during_capture = [("enabled", True), ("tuning", False), ("enabled", False), ("tuning", True)]
    expected_choice = {"aiter": [], "tunableop": during_capture}.get(library, [library, "default"])
    assert chosen == expected_choice * 2
    assert state == before


@pytest.mark.usefixtures("large_gpu")
def test_both_kinds_of_passes_work_together() -> None:
    model, x = BertLayer().eval().bfloat16(), torch.randn(2, 5, WIDTH).bfloat16()
    expected = model(x)
    packed(model, x)
    options = {
        **pass_options(dict.fromkeys([MERGED_PROJECTIONS, OWN_ATTENTION, SPLIT_PRODUCTS], True)),
        "fx_graph_cache": False,
    }
    options["post_grad_custom_post_pass"] = graph_pass(record)
    torch.testing.assert_close(torch.compile(model, options=options)(x), expected, rtol=5e-2, atol=5e-2)
    assert seen("joined_weights") == 2
    assert options["pre_grad_custom_pass"].rewrites == (use_own_attention, merge_projections)
    assert options["post_grad_custom_pre_pass"].rewrites == (join_weights, split_products)


@pytest.mark.usefixtures("large_gpu")
def test_passes_are_tried_only_for_models_that_they_change() -> None:
    def left(model: Any, *args: Any) -> set[str]:
        tried = {PACKED_ATTENTION, PATCH_PRODUCTS, MERGED_PROJECTIONS, OWN_ATTENTION, FUSED_ACTIVATIONS, SPLIT_PRODUCTS}
        tried |= {AUTOTUNED_PRODUCTS}
        with graph_passes.finding_unsuitable(model, tried) as unsuitable:
            model(*args)
        return tried - unsuitable

    x = torch.randn(2, 5, 32).bfloat16()
    assert left(BertLayer().bfloat16(), x) == {MERGED_PROJECTIONS, OWN_ATTENTION, FUSED_ACTIVATIONS, SPLIT_PRODUCTS}
    assert left(Narrow().bfloat16(), x) == {SPLIT_PRODUCTS, FUSED_ACTIVATIONS}
    assert left(TorchAttention().eval().bfloat16(), x) == {PACKED_ATTENTION, OWN_ATTENTION}
    assert left(nn.ReLU(), x) == set()
    assert left(nn.Linear(32, 32).bfloat16(), torch.randn(300, 32).bfloat16()) == {AUTOTUNED_PRODUCTS}
    picture = torch.randn(1, 3, 8, 8).bfloat16()
    assert left(nn.Conv2d(3, 8, 4, stride=4).bfloat16(), picture) == {PATCH_PRODUCTS, SPLIT_PRODUCTS}
    assert left(nn.Conv2d(3, 8, 4, stride=2).bfloat16(), picture) == set()
    assert left(functional.linear, x, torch.randn(32).bfloat16()) == set(), "a weight may be a vector"
    assert left(torch.mm, torch.randn(4, 1024).to_sparse(), torch.randn(1024, 5)) == set()
    assert left(torch.addmm, x[0, :, 0], torch.randn(4, 1024).bfloat16(), torch.randn(1024, 5).bfloat16()) == {
        SPLIT_PRODUCTS
    }


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rows", [1, 16, 50, 64, 128])
@pytest.mark.parametrize(("inner", "columns"), [(768, 768), (3072, 768), (1000, 333), (4096, 1024)])
def test_gpu_split_products_are_as_accurate_as_those_of_torch(dtype: str, rows: int, inner: int, columns: int) -> None:
    kind = getattr(torch, dtype)
    a = torch.randn(rows, inner, device="cuda").to(kind)
    for b in (
        torch.randn(columns, inner, device="cuda").to(kind).t(),
        torch.randn(inner, columns, device="cuda").to(kind),
    ):
        exact = a.double() @ b.double()
        ours = torch.ops.rocsolid.split_matmul(a, b, 3).sum(0).to(kind)
        eager_error = (a @ b - exact).abs().max()
        assert (ours - exact).abs().max() <= 1.5 * eager_error


@pytest.mark.gpu
def test_gpu_optimize_uses_our_attention_and_split_products(tmp_path: Any) -> None:
    class Layers(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.narrow, self.attends = nn.ModuleList(Narrow() for _ in range(3)), Attends()
            self.qkv = nn.Linear(32, 96)

        def forward(self, x: Any, earlier: Any, mask: Any) -> Any:
            for narrow in self.narrow:
                q, k, v = self.qkv(x).view(1, -1, 3, 2, 16).permute(2, 0, 3, 1, 4)
                x = narrow(x + self.attends(q, k, v, earlier, mask))
            return x

    model = Layers().cuda().bfloat16().eval()
    x = torch.randn(1, 50, 32, device="cuda", dtype=torch.bfloat16)
    earlier = torch.randn(1, 2, 800, 16, device="cuda", dtype=torch.bfloat16)
    mask = torch.rand(1, 1, 50, 850, device="cuda") > 0.2
    fast = rs.optimize(model, (x, earlier, mask), artefacts=tmp_path)
    torch.testing.assert_close(fast(x, earlier, mask), model(x, earlier, mask), rtol=5e-2, atol=5e-2)
    tried = [form for form in fast.report().forms if {OWN_ATTENTION, SPLIT_PRODUCTS} <= form.settings.keys()]
    assert tried, fast.report()
    assert any(form.timing for form in tried), [form.why for form in tried]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*Online softmax:UserWarning")
@pytest.mark.parametrize(
    "change", [step, load, load_assigning, write_through_data, replace_data, replace_parameter, replace_first]
)
def test_gpu_a_captured_graph_uses_changed_weights(change: Callable[[Any], None]) -> None:
    model, x = LlamaLayer().cuda().eval(), torch.randn(2, 5, WIDTH, device="cuda")
    packed(model, x)
    captured = rs.capture(torch.compile(model, options=pass_options(dict.fromkeys([MERGED_PROJECTIONS], True))))
    for _ in range(3):
        before = captured(x).clone()

    with torch.device("cuda"):
        change(model)

    expected = model(x)
    assert not torch.allclose(expected, before, atol=1e-3)
    for _ in range(2):
        torch.testing.assert_close(captured(x), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_gpu_optimize_tries_merged_projections(tmp_path: Any) -> None:
    model = nn.Sequential(*(LlamaLayer() for _ in range(2))).cuda().bfloat16().eval()
    x = torch.randn(1, 16, WIDTH, device="cuda", dtype=torch.bfloat16)
    reports = []
    for _ in range(2):  # the second call starts from what the first has saved
        fast = rs.optimize(model, x, artefacts=tmp_path)
        torch.testing.assert_close(fast(x), model(x), rtol=2e-2, atol=2e-2)
        reports.append(fast.report())
    assert any(MERGED_PROJECTIONS in result.settings for result in reports[0].forms), reports[0]
    assert reports[1].settings == reports[0].settings


def test_weights_are_not_moved_where_another_graph_may_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_passes, "has_other_graphs", lambda: True)
    layer = BertLayer()
    before = [weight.data_ptr() for weight in layer.parameters()]
    with graph_passes.finding_unsuitable(layer, {MERGED_PROJECTIONS}) as unsuitable:
        layer(torch.randn(2, 3, WIDTH))
    assert unsuitable == {MERGED_PROJECTIONS}
    assert [weight.data_ptr() for weight in layer.parameters()] == before


@pytest.mark.gpu
def test_gpu_a_graph_of_the_user_is_noticed_and_ours_is_not() -> None:
    from rocsolid.torchapi.graphs.device_graphs import has_other_graphs

    model, x = nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
    ours = rs.capture(model)
    ours(x)
    assert ours.report().captures == 1
    others = has_other_graphs()
    graph = torch.cuda.CUDAGraph()
    assert has_other_graphs()
    del graph
    assert has_other_graphs() == others


# Every pass by itself, as far as it changes the model, and all together.
ON_GPU: dict[str, tuple[tuple[str, ...], ...]] = {
    "bert": ((MERGED_PROJECTIONS,), (OWN_ATTENTION,), (FUSED_ACTIVATIONS,), (SPLIT_PRODUCTS,)),
    "gpt2": ((OWN_ATTENTION,), (FUSED_ACTIVATIONS,), (SPLIT_PRODUCTS,)),
    "vit": ((PACKED_ATTENTION,), (PACKED_ATTENTION, OWN_ATTENTION), (FUSED_ACTIVATIONS,)),
    "llama": ((MERGED_PROJECTIONS,), (OWN_ATTENTION,), (FUSED_ACTIVATIONS,), (SPLIT_PRODUCTS,)),
    "denoiser": ((OWN_ATTENTION,), (FUSED_ACTIVATIONS,), (SPLIT_PRODUCTS,)),
}
EVERY_PASS = (PACKED_ATTENTION, OWN_ATTENTION, FUSED_ACTIVATIONS, MERGED_PROJECTIONS, SPLIT_PRODUCTS)


def kernels_of(function: Callable[[Any], Any], x: Any) -> list[str]:
    """The kernels that a call launches, without copies by the driver."""
    function(x)
    torch.cuda.synchronize()
    # Without acc_events, the second profile of a process warns.
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        function(x)
        torch.cuda.synchronize()
    on_gpu = [
        e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA
    ]  # never the same object
    return [name for name in on_gpu if not name.startswith(("Memcpy", "Memset"))]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*Online softmax:UserWarning")
@pytest.mark.parametrize("kind", ON_GPU)
def test_gpu_passes_alone_and_together_are_as_accurate_as_eager(kind: str, capsys: Any) -> None:
    model, x = (part.to("cuda", torch.bfloat16) for part in small_models.two_layers(kind))
    exact = copy.deepcopy(model).double()(x.double())
    packed(model, x)

    def error(result: Any) -> float:
        return float((result.double() - exact).norm() / exact.norm())

    eager_error = error(model(x))
    lines, counts = [], {}
    for passes in ((), *ON_GPU[kind], EVERY_PASS):
        torch._dynamo.reset()
        fast = torch.compile(model, options=pass_options(dict.fromkeys(passes, True)) or None)
        found = error(fast(x))
        names = kernels_of(fast, x)
        counts[passes] = len(names)
        label = ", ".join(name.partition(".")[2] for name in passes) or "none"
        lines.append(
            f"{kind}, {label}: {len(names) / 2:g} kernels per layer, error {found / eager_error:.2f} of eager's"
        )
        assert found <= 1.5 * eager_error, lines[-1]
    lines += [f"  {name[:100]}" for name in names]
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *lines, ""]))
    assert counts[EVERY_PASS] < counts[()], lines
    assert counts[EVERY_PASS] <= 2 * 10, lines


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*Online softmax:UserWarning")
def test_gpu_the_largest_products_are_benchmarked() -> None:
    model, x = (part.to("cuda", torch.bfloat16) for part in small_models.two_layers("bert"))
    options = pass_options({AUTOTUNED_PRODUCTS: True, MERGED_PROJECTIONS: True})
    packed(model, x)
    fast = torch.compile(model, options=options)
    torch.testing.assert_close(fast(x), model(x), rtol=5e-2, atol=5e-2)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*Online softmax:UserWarning")
def test_gpu_weights_that_are_replaced_are_used_by_a_captured_graph_with_all_passes() -> None:
    model = small_models.LlamaLayer(256, 4, 512, 2).cuda().bfloat16().eval()
    x = torch.randn(1, 16, 256, device="cuda", dtype=torch.bfloat16)
    packed(model, x)
    captured = rs.capture(torch.compile(model, options=pass_options(dict.fromkeys(EVERY_PASS, True))))
    for _ in range(3):
        before = captured(x).clone()
    with torch.device("cuda"):
        for weight in (model.key.weight, model.up.weight):
            weight.data = torch.randn(*weight.shape, dtype=weight.dtype) / 16
    expected = model(x)
    assert not torch.allclose(expected, before, atol=1e-2)
    for _ in range(2):
        torch.testing.assert_close(captured(x), expected, rtol=5e-2, atol=5e-2)
