"""40 planted faults and 40 variants that are correct but different."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import nn

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@dataclass(frozen=True, kw_only=True)
class Case:
    """A candidate and the model it claims to be."""

    candidate: Callable[..., Any]
    model: Callable[..., Any]
    inputs: Any


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A case by name; `ops` are the operators of which one must be named."""

    name: str
    make: Callable[[str], Case]
    ops: tuple[str, ...] = ()


FAULTS: list[Entry] = []
VARIANTS: list[Entry] = []


def fault(*ops: str) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        FAULTS.append(Entry(name=make.__name__, make=make, ops=ops))
        return make

    return add


def variant(make: Any) -> Any:
    VARIANTS.append(Entry(name=make.__name__, make=make))
    return make


def rand(*shape: int, device: str, dtype: Any = F32, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device=device, dtype=dtype)


def qkv(device: str, dtype: Any = F32, *, length: int = 12, width: int = 16) -> tuple[Any, ...]:
    return tuple(rand(2, length, width, device=device, dtype=dtype, seed=seed) for seed in range(3))


def attention(q: Any, k: Any, v: Any, mask: Any = None, scale: float | None = None) -> Any:
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


def causal(x: Any, diagonal: int = 0) -> Any:
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril(diagonal)


def mlp(device: str, dtype: Any = F32, *, width: int = 32, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.LayerNorm(width))
    return model.to(device=device, dtype=dtype).eval()


# Faults ---------------------------------------------------------------------------------------------------------------------------


@fault("tril")
def mask_off_by_one(d: str) -> Case:
    return Case(
        candidate=lambda q, k, v: attention(q, k, v, causal(q, 1)),
        model=lambda q, k, v: attention(q, k, v, causal(q)),
        inputs=qkv(d),
    )


@fault("masked_fill")
def mask_ignored(d: str) -> Case:
    return Case(
        candidate=attention,
        model=lambda q, k, v: attention(q, k, v, causal(q)),
        inputs=qkv(d),
    )


@fault("mean", "mul", "sum")
def padding_leaks_into_mean(d: str) -> Case:
    mask = (torch.arange(12, device=d) < 7).float()[None, :, None]
    return Case(
        candidate=lambda x: x.mean(1),
        model=lambda x: (x * mask).sum(1) / mask.sum(1),
        inputs=rand(2, 12, 16, device=d),
    )


@fault("amax", "div")
def scale_of_first_call_is_kept(d: str) -> Case:
    seen: list[Any] = []

    def stale(x: Any) -> Any:
        if not seen:
            seen.append(x.abs().amax())
        return x / seen[0]

    stale(rand(4, 16, device=d, seed=9))
    return Case(candidate=stale, model=lambda x: x / x.abs().amax(), inputs=rand(4, 16, device=d))


@fault("mul", "mean")
def value_became_a_constant(d: str) -> Case:
    baked: list[float] = []

    def candidate(x: Any) -> Any:
        if not baked:
            baked.append(float(x.mean()))
        return x * baked[0]

    return Case(candidate=candidate, model=lambda x: x * float(x.mean()), inputs=rand(4, 16, device=d) + 1)


@fault("sub")
def operands_of_sub_swapped(d: str) -> Case:
    a, b = rand(4, 16, device=d), rand(4, 16, device=d, seed=1)
    return Case(candidate=lambda a, b: (b - a).relu(), model=lambda a, b: (a - b).relu(), inputs=(a, b))


@fault("mm", "matmul")
def operands_of_matmul_swapped(d: str) -> Case:
    a, b = rand(16, 16, device=d), rand(16, 16, device=d, seed=1)
    return Case(candidate=lambda a, b: b @ a, model=lambda a, b: a @ b, inputs=(a, b))


@fault("exp")
def softmax_without_max(d: str) -> Case:
    def candidate(x: Any) -> Any:
        e = x.exp()
        return e / e.sum(-1, keepdim=True)

    return Case(candidate=candidate, model=lambda x: x.softmax(-1), inputs=rand(4, 64, device=d) * 10)


@fault("mul", "pow", "mean", "sum", "rsqrt")
def overflow_in_float16(d: str) -> Case:
    x = rand(4, 64, device=d, dtype=F16) * 400
    return Case(
        candidate=lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True)),
        model=lambda x: (x.float() * torch.rsqrt((x.float() * x.float()).mean(-1, keepdim=True))).to(x.dtype),
        inputs=x,
    )


@fault("add", "sum")
def reduction_in_bfloat16(d: str) -> Case:
    def candidate(x: Any) -> Any:
        total = torch.zeros_like(x[:, 0])
        for column in range(x.shape[1]):
            total = total + x[:, column]
        return total

    return Case(candidate=candidate, model=lambda x: x.sum(1), inputs=rand(16, 1500, device=d, dtype=BF16).abs())


@fault("bernoulli", "rand", "dropout", "mul", "div")
def random_offset(d: str) -> Case:
    def candidate(x: Any) -> Any:
        torch.rand(1, device=x.device)
        return F.dropout(x, 0.5, training=True)

    return Case(candidate=candidate, model=lambda x: F.dropout(x, 0.5, training=True), inputs=rand(8, 64, device=d))


@fault("mm", "t", "linear")
def old_weights_after_reload(d: str) -> Case:
    model, old = mlp(d), mlp(d)
    model.load_state_dict(mlp(d, seed=5).state_dict())
    return Case(candidate=old, model=model, inputs=rand(4, 32, device=d))


@fault("softmax")
def softmax_over_wrong_dim(d: str) -> Case:
    return Case(candidate=lambda x: x.softmax(0), model=lambda x: x.softmax(-1), inputs=rand(8, 8, device=d))


@fault("layer_norm")
def wrong_epsilon(d: str) -> Case:
    return Case(
        candidate=lambda x: F.layer_norm(x, (32,), eps=0.1),
        model=lambda x: F.layer_norm(x, (32,), eps=1e-5),
        inputs=rand(4, 32, device=d),
    )


@fault("mm")
def bias_left_out(d: str) -> Case:
    layer = mlp(d)[0]
    return Case(candidate=lambda x: F.linear(x, layer.weight), model=layer, inputs=rand(4, 32, device=d))


@fault("relu")
def other_activation(d: str) -> Case:
    model = mlp(d)
    return Case(candidate=lambda x: model[3](model[2](F.relu(model[0](x)))), model=model, inputs=rand(4, 32, device=d))


@fault("add")
def residual_left_out(d: str) -> Case:
    model = mlp(d)
    return Case(candidate=lambda x: model(x) * 1.0, model=lambda x: x + model(x), inputs=rand(4, 32, device=d))


@fault("argmax")
def argmax_over_wrong_dim(d: str) -> Case:
    return Case(candidate=lambda x: x.argmax(0), model=lambda x: x.argmax(1), inputs=rand(8, 8, device=d))


@fault("where", "masked_fill", "isnan")
def nan_of_empty_rows_kept(d: str) -> Case:
    mask = torch.ones(4, 8, dtype=torch.bool, device=d)
    mask[2] = False

    def scores(x: Any) -> Any:
        return x.masked_fill(~mask, float("-inf")).softmax(-1)

    return Case(
        candidate=scores,
        model=lambda x: torch.where(mask.any(-1, keepdim=True), scores(x), 0.0),
        inputs=rand(4, 8, device=d),
    )


@fault("_to_copy", "to")
def another_dtype(d: str) -> Case:
    return Case(
        candidate=lambda x: x.float().exp(),
        model=lambda x: x.float().exp().to(x.dtype),
        inputs=rand(4, 8, device=d, dtype=BF16),
    )


@fault("t", "mm", "transpose")
def weight_transposed(d: str) -> Case:
    w = rand(16, 16, device=d, seed=3)
    return Case(candidate=lambda x: x @ w.t(), model=lambda x: x @ w, inputs=rand(4, 16, device=d))


@fault("view", "transpose", "reshape", "clone", "_unsafe_view", "permute")
def heads_mixed(d: str) -> Case:
    def merge(x: Any, *, swap: bool) -> Any:
        heads = x.view(2, 12, 4, 4)
        heads = heads.transpose(1, 2) if swap else heads.reshape(2, 4, 12, 4)
        return F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(2, 12, 16)

    return Case(
        candidate=lambda x: merge(x, swap=False), model=lambda x: merge(x, swap=True), inputs=rand(2, 12, 16, device=d)
    )


def rope(x: Any, *, offset: int = 0, sign: float = -1.0) -> Any:
    half = x.shape[-1] // 2
    angle = (torch.arange(x.shape[1], device=x.device) + offset)[:, None] * 0.3 ** torch.arange(half, device=x.device)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() + sign * b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


@fault("mul")
def rotation_with_wrong_sign(d: str) -> Case:
    return Case(candidate=lambda x: rope(x, sign=1.0), model=rope, inputs=rand(2, 12, 16, device=d))


@fault("add", "arange")
def positions_off_by_one(d: str) -> Case:
    return Case(candidate=lambda x: rope(x, offset=1), model=rope, inputs=rand(2, 12, 16, device=d))


@fault("copy_", "slice", "select")
def cache_written_at_wrong_slot(d: str) -> Case:
    def decode(slot: int) -> Callable[..., Any]:
        def step(x: Any, cache: Any) -> Any:
            cache[:, slot] = x[:, 0]
            return attention(x, cache, cache)

        return step

    inputs = (rand(2, 1, 16, device=d), rand(2, 8, 16, device=d, seed=1))
    return Case(candidate=decode(5), model=decode(4), inputs=inputs)


@fault("batch_norm")
def batch_statistics_in_eval(d: str) -> Case:
    torch.manual_seed(0)
    model = nn.BatchNorm1d(16).to(d)
    model(rand(64, 16, device=d) * 3 + 1)
    model.eval()

    def candidate(x: Any) -> Any:
        return F.batch_norm(x, None, None, model.weight, model.bias, training=True)

    return Case(candidate=candidate, model=model, inputs=rand(8, 16, device=d))


@fault("topk")
def too_few_results(d: str) -> Case:
    return Case(candidate=lambda x: x.topk(4)[0], model=lambda x: x.topk(5)[0], inputs=rand(8, 32, device=d))


@fault("embedding", "add", "clamp")
def tokens_shifted(d: str) -> Case:
    table = rand(32, 16, device=d, seed=2)
    tokens = torch.arange(8, device=d).reshape(2, 4)
    return Case(candidate=lambda t: F.embedding(t + 1, table), model=lambda t: F.embedding(t, table), inputs=tokens)


@fault("clamp", "exp")
def clamp_left_out(d: str) -> Case:
    return Case(
        candidate=lambda x: (x * 0.5).exp(),
        model=lambda x: (x * 0.5).clamp(max=2.0).exp(),
        inputs=rand(4, 32, device=d) * 4,
    )


@fault("mean")
def mean_over_wrong_dim(d: str) -> Case:
    return Case(candidate=lambda x: x - x.mean(0), model=lambda x: x - x.mean(1), inputs=rand(8, 8, device=d))


@fault("var")
def unbiased_variance(d: str) -> Case:
    def norm(x: Any, *, unbiased: bool) -> Any:
        return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=unbiased) + 1e-5)

    return Case(
        candidate=lambda x: norm(x, unbiased=True), model=lambda x: norm(x, unbiased=False), inputs=rand(8, 8, device=d)
    )


@fault("div", "floor")
def integer_division(d: str) -> Case:
    n = torch.arange(1, 33, device=d).reshape(4, 8)
    return Case(candidate=lambda n: (n // 3) * 1.0, model=lambda n: (n / 3) * 1.0, inputs=n)


@fault("mul", "max")
def quantisation_scale_per_tensor(d: str) -> Case:
    w = torch.randint(-127, 127, (16, 16), generator=torch.Generator().manual_seed(0)).to(d)
    scales = rand(16, device=d, seed=1).abs() / 100 + 0.001
    return Case(
        candidate=lambda x: x @ (w * scales.max()).t(),
        model=lambda x: x @ (w * scales[:, None]).t(),
        inputs=rand(4, 16, device=d),
    )


@fault("slice", "mm")
def last_block_skipped(d: str) -> Case:
    a, b = rand(8, 70, device=d), rand(70, 8, device=d, seed=1)
    return Case(candidate=lambda a, b: a[:, :64] @ b[:64], model=lambda a, b: a @ b, inputs=(a, b))


@fault("pad")
def other_padding(d: str) -> Case:
    kernel = rand(4, 3, 3, 3, device=d, seed=1)
    return Case(
        candidate=lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1)), kernel),
        model=lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), kernel),
        inputs=rand(2, 3, 8, 8, device=d),
    )


@fault("copy_", "fill_", "select", "slice", "zero_", "clone")
def last_element_of_tile_is_stale(d: str) -> Case:
    def candidate(x: Any) -> Any:
        result = (x * 2).clone()
        result[-1, -1] = 0.0
        return result

    return Case(candidate=candidate, model=lambda x: x * 2, inputs=rand(100, 100, device=d, dtype=BF16).abs() + 1)


@fault("add", "copy_", "mul")
def argument_not_updated(d: str) -> Case:
    def model(x: Any, state: Any) -> Any:
        state.mul_(0.9).add_(x)
        return state * 2

    def candidate(x: Any, state: Any) -> Any:
        return (state * 0.9 + x) * 2

    return Case(candidate=candidate, model=model, inputs=(rand(4, 8, device=d), rand(4, 8, device=d, seed=1)))


@fault("nll_loss", "cross_entropy")
def ignored_labels_counted(d: str) -> Case:
    labels = torch.tensor([1, 2, 0, 0, 3, 0], device=d)
    return Case(
        candidate=lambda x: F.cross_entropy(x, labels),
        model=lambda x: F.cross_entropy(x, labels, ignore_index=0),
        inputs=rand(6, 5, device=d),
    )


def _vendor(name: str, scale: float) -> Callable[..., Any]:
    """A vendor's attention kernel as an operator; `scale` is the planted factor."""
    full = f"verify_cases::{name}"
    if not hasattr(torch.ops.verify_cases, name):

        def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            wide = attention(q.float(), k.float(), v.float(), scale=scale * q.shape[-1] ** -0.5)
            return wide.to(q.dtype)

        torch.library.custom_op(full, kernel, mutates_args=())
    operator: Callable[..., Any] = getattr(torch.ops.verify_cases, name)
    return operator


@fault("verify_cases")
def vendor_op_with_wrong_scale(d: str) -> Case:
    return Case(candidate=_vendor("scaled", 0.25), model=_vendor("good", 1.0), inputs=qkv(d, BF16))


@fault("mul", "div")
def result_two_percent_too_large(d: str) -> Case:
    model = mlp(d, BF16)
    return Case(
        candidate=lambda x: model(x) * 1.02, model=lambda x: model(x) * 1.0, inputs=rand(64, 32, device=d, dtype=BF16)
    )


# Variants that are correct ----------------------------------------------------------------------------------------------------------


@variant
def sum_in_reverse(d: str) -> Case:
    return Case(candidate=lambda x: x.flip(1).sum(1), model=lambda x: x.sum(1), inputs=rand(8, 2000, device=d))


@variant
def sum_in_chunks_bfloat16(d: str) -> Case:
    return Case(
        candidate=lambda x: torch.stack([c.sum(1) for c in x.chunk(4, 1)]).sum(0),
        model=lambda x: x.sum(1),
        inputs=rand(8, 2048, device=d, dtype=BF16),
    )


@variant
def matmul_split_k(d: str) -> Case:
    a, b = rand(16, 256, device=d), rand(256, 16, device=d, seed=1)
    return Case(
        candidate=lambda a, b: a[:, :128] @ b[:128] + a[:, 128:] @ b[128:], model=lambda a, b: a @ b, inputs=(a, b)
    )


@variant
def matmul_split_k_bfloat16(d: str) -> Case:
    a, b = rand(32, 512, device=d, dtype=BF16), rand(512, 32, device=d, dtype=BF16, seed=1)
    return Case(
        candidate=lambda a, b: a[:, :256] @ b[:256] + a[:, 256:] @ b[256:], model=lambda a, b: a @ b, inputs=(a, b)
    )


@variant
def softmax_by_hand(d: str) -> Case:
    def candidate(x: Any) -> Any:
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    return Case(candidate=candidate, model=lambda x: x.softmax(-1), inputs=rand(8, 64, device=d))


@variant
def softmax_by_logsumexp_bfloat16(d: str) -> Case:
    return Case(
        candidate=lambda x: (x.float() - x.float().logsumexp(-1, keepdim=True)).exp().to(x.dtype),
        model=lambda x: x.softmax(-1),
        inputs=rand(8, 64, device=d, dtype=BF16),
    )


@variant
def fused_attention(d: str) -> Case:
    return Case(candidate=F.scaled_dot_product_attention, model=attention, inputs=qkv(d))


@variant
def fused_attention_bfloat16(d: str) -> Case:
    return Case(candidate=F.scaled_dot_product_attention, model=attention, inputs=qkv(d, BF16))


@variant
def fused_attention_float16(d: str) -> Case:
    return Case(candidate=F.scaled_dot_product_attention, model=attention, inputs=qkv(d, F16))


@variant
def float32_inside_bfloat16(d: str) -> Case:
    model = mlp(d, BF16)
    wide = mlp(d, BF16).float()
    return Case(candidate=lambda x: wide(x.float()).to(BF16), model=model, inputs=rand(16, 32, device=d, dtype=BF16))


@variant
def gelu_by_tanh_bfloat16(d: str) -> Case:
    model = mlp(d, BF16)
    return Case(
        candidate=lambda x: model[3](model[2](F.gelu(model[0](x), approximate="tanh"))),
        model=model,
        inputs=rand(16, 32, device=d, dtype=BF16),
    )


@variant
def silu_by_hand(d: str) -> Case:
    return Case(candidate=lambda x: x * torch.sigmoid(x), model=F.silu, inputs=rand(8, 64, device=d))


@variant
def silu_by_hand_bfloat16(d: str) -> Case:
    return Case(candidate=lambda x: x * torch.sigmoid(x), model=F.silu, inputs=rand(8, 64, device=d, dtype=BF16))


@variant
def layer_norm_by_hand(d: str) -> Case:
    def candidate(x: Any) -> Any:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    return Case(candidate=candidate, model=lambda x: F.layer_norm(x, (64,)), inputs=rand(8, 64, device=d))


@variant
def layer_norm_by_hand_bfloat16(d: str) -> Case:
    def candidate(x: Any) -> Any:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    return Case(candidate=candidate, model=lambda x: F.layer_norm(x, (64,)), inputs=rand(8, 64, device=d, dtype=BF16))


@variant
def same_dropout(d: str) -> Case:
    return Case(
        candidate=lambda x: F.dropout(x + x, 0.5, training=True),
        model=lambda x: F.dropout(x * 2, 0.5, training=True),
        inputs=rand(8, 64, device=d),
    )


@variant
def argmax_with_close_scores(d: str) -> Case:
    w = rand(64, 512, device=d, dtype=BF16, seed=1)

    def model(x: Any) -> Any:
        scores = x @ w
        return scores, scores.argmax(-1)

    def candidate(x: Any) -> Any:
        scores = (x[:, :32] @ w[:32]) + (x[:, 32:] @ w[32:])
        return scores, scores.argmax(-1)

    return Case(candidate=candidate, model=model, inputs=rand(64, 64, device=d, dtype=BF16))


@variant
def loss_as_python_float(d: str) -> Case:
    labels = torch.tensor([1, 2, 0, 3], device=d)
    return Case(
        candidate=lambda x: float(-x.log_softmax(-1).gather(1, labels[:, None]).mean()),
        model=lambda x: float(F.cross_entropy(x, labels)),
        inputs=rand(4, 5, device=d),
    )


@variant
def float64_inside(d: str) -> Case:
    model, wide = mlp(d), mlp(d).double()
    return Case(candidate=lambda x: wide(x.double()).float(), model=model, inputs=rand(8, 32, device=d))


@variant
def argument_updated_out_of_place(d: str) -> Case:
    def model(x: Any, state: Any) -> Any:
        state.mul_(0.9).add_(x)
        return state * 2

    def candidate(x: Any, state: Any) -> Any:
        state.copy_(torch.add(x, state, alpha=0.9))
        return state + state

    return Case(candidate=candidate, model=model, inputs=(rand(4, 8, device=d), rand(4, 8, device=d, seed=1)))


@variant
def rms_norm_with_reciprocal(d: str) -> Case:
    return Case(
        candidate=lambda x: x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt(),
        model=lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
        inputs=rand(8, 64, device=d),
    )


@variant
def variance_from_moments(d: str) -> Case:
    return Case(
        candidate=lambda x: (x * x).mean(-1) - x.mean(-1) ** 2,
        model=lambda x: x.var(-1, unbiased=False),
        inputs=rand(8, 64, device=d) + 3,
    )


@variant
def one_matmul_for_qkv(d: str) -> Case:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 32).to(d) for _ in range(3)]
    weight, bias = torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])
    return Case(
        candidate=lambda x: F.linear(x, weight, bias).chunk(3, -1),
        model=lambda x: tuple(layer(x) for layer in layers),
        inputs=rand(8, 32, device=d),
    )


@variant
def convolution_as_matmul(d: str) -> Case:
    kernel = rand(8, 3, 3, 3, device=d, seed=1)

    def candidate(x: Any) -> Any:
        return (kernel.reshape(8, -1) @ F.unfold(x, 3, padding=1)).reshape(2, 8, 10, 10)

    return Case(
        candidate=candidate, model=lambda x: F.conv2d(x, kernel, padding=1), inputs=rand(2, 3, 10, 10, device=d)
    )


@variant
def batch_norm_folded(d: str) -> Case:
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 8, 3).to(d), nn.BatchNorm2d(8).to(d)
    norm(conv(rand(4, 3, 12, 12, device=d, seed=4)))
    norm.eval()
    factor = norm.weight / (norm.running_var + norm.eps).sqrt()
    weight, bias = conv.weight * factor[:, None, None, None], (conv.bias - norm.running_mean) * factor + norm.bias
    return Case(
        candidate=lambda x: F.conv2d(x, weight, bias),
        model=lambda x: norm(conv(x)),
        inputs=rand(2, 3, 12, 12, device=d),
    )


@variant
def einsum(d: str) -> Case:
    w = rand(32, 16, device=d, dtype=BF16, seed=1)
    return Case(
        candidate=lambda x: torch.einsum("btk,kn->btn", x, w),
        model=lambda x: x @ w,
        inputs=rand(2, 8, 32, device=d, dtype=BF16),
    )


@variant
def mean_as_sum(d: str) -> Case:
    return Case(
        candidate=lambda x: x.sum(-1) / x.shape[-1],
        model=lambda x: x.mean(-1),
        inputs=rand(8, 333, device=d, dtype=F16),
    )


@variant
def rotation_with_complex_numbers(d: str) -> Case:
    def candidate(x: Any) -> Any:
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[1], device=x.device)[:, None] * 0.3 ** torch.arange(half, device=x.device)
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([turned.real, turned.imag], -1)

    return Case(candidate=candidate, model=rope, inputs=rand(2, 12, 16, device=d))


@variant
def online_softmax(d: str) -> Case:
    def candidate(q: Any, k: Any, v: Any) -> Any:
        top = torch.full((*q.shape[:-1], 1), float("-inf"), device=q.device)
        total, result = torch.zeros_like(top), torch.zeros_like(q, dtype=F32)
        for kb, vb in zip(k.float().chunk(3, 1), v.float().chunk(3, 1), strict=True):
            scores = q.float() @ kb.transpose(1, 2) * q.shape[-1] ** -0.5
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            weights, old = (scores - new).exp(), (top - new).exp()
            total, result, top = total * old + weights.sum(-1, keepdim=True), result * old + weights @ vb, new
        return (result / total).to(q.dtype)

    return Case(candidate=candidate, model=attention, inputs=qkv(d, BF16))


@variant
def scaled_queries(d: str) -> Case:
    return Case(
        candidate=lambda q, k, v: attention(q * q.shape[-1] ** -0.5, k, v, scale=1.0),
        model=attention,
        inputs=qkv(d, F16),
    )


@variant
def bias_added_later(d: str) -> Case:
    layer = mlp(d, BF16)[0]
    return Case(
        candidate=lambda x: x @ layer.weight.t() + layer.bias, model=layer, inputs=rand(16, 32, device=d, dtype=BF16)
    )


@variant
def sigmoid_by_tanh(d: str) -> Case:
    return Case(candidate=lambda x: 0.5 * (1 + torch.tanh(x / 2)), model=torch.sigmoid, inputs=rand(8, 64, device=d))


@variant
def group_norm_by_hand(d: str) -> Case:
    def candidate(x: Any) -> Any:
        groups = x.reshape(2, 4, -1)
        centred = groups - groups.mean(-1, keepdim=True)
        return (centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)).reshape(x.shape)

    return Case(candidate=candidate, model=lambda x: F.group_norm(x, 4), inputs=rand(2, 16, 6, 6, device=d))


@variant
def topk_by_sort(d: str) -> Case:
    return Case(
        candidate=lambda x: x.sort(-1, descending=True)[0][..., :5],
        model=lambda x: x.topk(5)[0],
        inputs=rand(8, 64, device=d),
    )


@variant
def embedding_as_matmul(d: str) -> Case:
    table = rand(32, 16, device=d, seed=2)
    tokens = torch.arange(8, device=d).reshape(2, 4)
    return Case(
        candidate=lambda t: F.one_hot(t, 32).float() @ table, model=lambda t: F.embedding(t, table), inputs=tokens
    )


@variant
def exp_by_exp2(d: str) -> Case:
    return Case(candidate=lambda x: torch.exp2(x * math.log2(math.e)), model=torch.exp, inputs=rand(8, 64, device=d))


@variant
def norm_gain_folded_into_weight(d: str) -> Case:
    gain, w = rand(32, device=d, dtype=BF16, seed=1), rand(32, 32, device=d, dtype=BF16, seed=2)
    folded = (gain.float()[:, None] * w.float()).to(BF16)
    return Case(
        candidate=lambda x: F.rms_norm(x, (32,)) @ folded,
        model=lambda x: (F.rms_norm(x, (32,)) * gain) @ w,
        inputs=rand(64, 32, device=d, dtype=BF16),
    )


@variant
def softplus_by_log1p(d: str) -> Case:
    return Case(
        candidate=lambda x: x.clamp(min=0) + torch.log1p((-x.abs()).exp()),
        model=F.softplus,
        inputs=rand(8, 64, device=d),
    )


@variant
def scatter_as_index_add(d: str) -> Case:
    where = torch.randint(0, 10, (64,), generator=torch.Generator().manual_seed(0)).to(d)
    return Case(
        candidate=lambda x: torch.zeros(10, 16, device=d).index_add(0, where, x),
        model=lambda x: torch.zeros(10, 16, device=d).scatter_add(0, where[:, None].expand(-1, 16), x),
        inputs=rand(64, 16, device=d),
    )


@variant
def inputs_rounded_as_by_tf32(d: str) -> Case:
    def tf32(x: Any) -> Any:
        return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(F32)

    a, b = rand(32, 128, device=d), rand(128, 32, device=d, seed=1)
    return Case(candidate=lambda a, b: tf32(a) @ tf32(b), model=lambda a, b: a @ b, inputs=(a, b))
