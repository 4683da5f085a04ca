"""20 planted faults and 20 correct variants, written by somebody who knew only the public documentation.

The cases are not to be changed when `rs.verify` changes; others belong into `cases.py`.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

import rocsolid as rs

Case = Callable[[], tuple[Any, ...]]
FAULTS: list[tuple[Case, tuple[str, ...]]] = []
VARIANTS: list[Case] = []


def fault(ops: tuple[str, ...]) -> Callable[[Case], Case]:
    """Collect a planted fault; `ops` are acceptable names of the first wrong operator."""

    def collect(case: Case) -> Case:
        FAULTS.append((case, ops))
        return case

    return collect


def variant(case: Case) -> Case:
    """Collect a correct variant."""
    VARIANTS.append(case)
    return case


# --- models shared by several cases ---


def heads(x: Tensor, n: int) -> Tensor:
    """[B, T, C] to [B, n, T, C / n]."""
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    """[B, n, T, D] to [B, T, n * D]."""
    return x.transpose(1, 2).flatten(2)


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention with explicit products and mask."""

    def __init__(self, dim: int = 64, n: int = 4, gain: float = 1.0) -> None:
        super().__init__()
        self.n = n
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        with torch.no_grad():
            self.q.weight.mul_(gain)
            self.k.weight.mul_(gain)

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return heads(self.q(x), self.n), heads(self.k(x), self.n), heads(self.v(x), self.n)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        probs = scores.masked_fill(~keep, float("-inf")).softmax(-1)
        return self.o(merge(probs @ v))


class Block(nn.Module):  # type: ignore[misc]
    """Pre-norm transformer block."""

    def __init__(self, dim: int = 64, n: int = 4) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, n)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def mlp(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class DecodeStep(nn.Module):  # type: ignore[misc]
    """One decoding step with a static KV cache; the position is a tensor that advances."""

    def __init__(self, dim: int = 64, n: int = 4, length: int = 16, batch: int = 2) -> None:
        super().__init__()
        self.n, self.length = n, length
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.register_buffer("keys", torch.zeros(batch, n, length, dim // n))
        self.register_buffer("values", torch.zeros(batch, n, length, dim // n))
        self.register_buffer("pos", torch.zeros(1, dtype=torch.long))

    def slot(self) -> Tensor:
        return self.pos

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.n, -1)).unsqueeze(2) for part in self.qkv(x).chunk(3, -1))
        self.keys.index_copy_(2, self.slot(), k)
        self.values.index_copy_(2, self.slot(), v)
        scores = q @ self.keys.transpose(-1, -2) / math.sqrt(q.shape[-1])
        seen = torch.arange(self.length) <= self.pos
        probs = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        out = self.o((probs @ self.values).flatten(1))
        self.pos.add_(1).remainder_(self.length)
        return out


class RMSNorm(nn.Module):  # type: ignore[misc]
    """RMS norm as in Llama: float32 inside, rounded before the weight."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(1 + 0.2 * torch.randn(dim)), eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def conv_net() -> nn.Sequential:
    """Two convolutions with batch norms whose statistics are not trivial."""
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
    ).eval()  # fmt: skip
    with torch.no_grad():
        for norm in (net[1], net[4]):
            norm.running_mean.normal_(0, 0.2)
            norm.running_var.uniform_(0.2, 0.8)
            norm.weight.normal_(1, 0.2)
            norm.bias.normal_(0, 0.2)
    return net


def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d, var: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution with the batch norm folded in."""
    scale = norm.weight.double() / (var.double() + norm.eps).sqrt()
    weight = conv.weight.double() * scale[:, None, None, None]
    bias = (conv.bias.double() - norm.running_mean.double()) * scale + norm.bias.double()
    return weight.to(conv.weight.dtype), bias.to(conv.weight.dtype)


# --- faults ---


@fault(ops=("aten.tril.default", "aten.masked_fill.Scalar", "aten.bitwise_not.default"))
def causal_mask_off_by_one() -> tuple[Any, ...]:
    """The mask keeps one key after the query."""
    torch.manual_seed(1)
    model = Attention().eval()

    def candidate(x: Tensor) -> Tensor:
        q, k, v = model.qkv(x)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(1)
        probs = scores.masked_fill(~keep, float("-inf")).softmax(-1)
        return model.o(merge(probs @ v))

    return candidate, model, torch.randn(2, 48, 64)


@fault(ops=("aten.index_copy_.default", "aten.index_copy.default"))
def kv_cache_slot_baked_in() -> tuple[Any, ...]:
    """Keys and values are always written to slot 0, the position at the time of the capture."""
    torch.manual_seed(2)

    class Baked(DecodeStep):
        def slot(self) -> Tensor:
            return torch.zeros(1, dtype=torch.long)

    model = DecodeStep().eval()
    candidate = Baked().eval()
    candidate.load_state_dict(model.state_dict())
    return candidate.bfloat16(), model.bfloat16(), torch.randn(2, 64).bfloat16()


@fault(ops=("aten.div.Tensor", "aten.round.default", "aten.clamp.default", "aten.mul.Tensor"))
def activation_scale_baked_in() -> tuple[Any, ...]:
    """The dynamic quantization scale of the first call became a constant."""
    torch.manual_seed(3)
    up, down = nn.Linear(96, 128), nn.Linear(128, 48)

    def quantized(h: Tensor, scale: Tensor) -> Tensor:
        return down((h / scale).round().clamp(-127, 127) * scale)

    def reference(x: Tensor) -> Tensor:
        h = F.relu(up(x))
        return quantized(h, h.abs().amax() / 127)

    constant: list[Tensor] = []

    def candidate(x: Tensor) -> Tensor:
        h = F.relu(up(x))
        if not constant:
            constant.append(h.abs().amax() / 127)
        return quantized(h, constant[0])

    return candidate, reference, torch.randn(8, 96)


@fault(ops=("aten.exp.default", "aten.sum.dim_IntList", "aten.div.Tensor"))
def softmax_without_max_fp16() -> tuple[Any, ...]:
    """Exp of large scores overflows in float16, because the maximum is not subtracted."""
    torch.manual_seed(4)
    model = Attention(gain=4.0).eval().half()

    def candidate(x: Tensor) -> Tensor:
        q, k, v = model.qkv(x)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        weights = scores.masked_fill(~keep, float("-inf")).exp()
        return model.o(merge(weights / weights.sum(-1, keepdim=True) @ v))

    return candidate, model, torch.randn(2, 32, 64).half()


@fault(ops=("aten.pow.Tensor_Scalar", "aten.square.default", "aten.mean.dim", "aten.mul.Tensor"))
def rms_norm_square_in_fp16() -> tuple[Any, ...]:
    """The squares of outlier channels overflow in float16; the model squares in float32."""
    torch.manual_seed(5)
    norm, proj = RMSNorm(128).half(), nn.Linear(128, 64).half()

    def reference(x: Tensor) -> Tensor:
        return proj(norm(x))

    def candidate(x: Tensor) -> Tensor:
        return proj(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.eps) * norm.weight)

    x = torch.randn(4, 16, 128)
    x[1, 3:9, 17] = 310.0  # massive activations of some tokens
    return candidate, reference, x.half()


@fault(ops=("aten.add.Tensor", "aten.add_.Tensor", "aten.div.Tensor"))
def mean_accumulated_in_bf16() -> tuple[Any, ...]:
    """A running sum over 512 tokens in bfloat16 stalls; the model sums in float32."""
    torch.manual_seed(6)
    gate, head = nn.Linear(48, 32).bfloat16(), nn.Linear(32, 16).bfloat16()

    def reference(x: Tensor) -> Tensor:
        h = torch.sigmoid(gate(x) - 0.5)
        return head(h.float().mean(1).to(x.dtype))

    def candidate(x: Tensor) -> Tensor:
        h = torch.sigmoid(gate(x) - 0.5)
        total = torch.zeros_like(h[:, 0])
        for part in h.unbind(1):
            total = total + part
        return head(total / h.shape[1])

    return candidate, reference, torch.randn(2, 512, 48).bfloat16()


@fault(ops=("aten.mul.Tensor", "aten.native_dropout.default", "aten.dropout.default", "aten.bernoulli_.float"))
def dropout_mask_drawn_once() -> tuple[Any, ...]:
    """The dropout mask of the first call is used in every call."""
    torch.manual_seed(7)
    up, down = nn.Linear(64, 128), nn.Linear(128, 32)
    mask: list[Tensor] = []

    def reference(x: Tensor) -> Tensor:
        return down(F.dropout(F.gelu(up(x)), 0.2, training=True))

    def candidate(x: Tensor) -> Tensor:
        h = F.gelu(up(x))
        if not mask:
            mask.append(F.dropout(torch.ones_like(h), 0.2, training=True))
        return down(h * mask[0])

    return candidate, reference, torch.randn(8, 64)


@fault(ops=("aten.mm.default", "aten.addmm.default", "aten.matmul.default", "aten.linear.default"))
def packed_weight_stale_after_reload() -> tuple[Any, ...]:
    """A packed copy of one weight is still that of the old checkpoint, 3 % away."""
    torch.manual_seed(8)
    model = nn.Sequential(nn.Linear(96, 192), nn.GELU(), nn.Linear(192, 96), nn.LayerNorm(96)).eval()
    packed = model[2].weight.detach().t().contiguous()
    state = model.state_dict()
    state["2.weight"] = state["2.weight"] + 0.03 * state["2.weight"].std() * torch.randn(96, 192)
    model.load_state_dict(state)

    def candidate(x: Tensor) -> Tensor:
        return model[3](model[1](model[0](x)) @ packed + model[2].bias)

    return candidate, model, torch.randn(12, 96)


@fault(ops=("aten.mean.dim", "aten.div.Tensor", "aten.sum.dim_IntList"))
def padding_counted_in_mean() -> tuple[Any, ...]:
    """The masked mean divides by the padded length."""
    torch.manual_seed(9)
    proj, head = nn.Linear(64, 64).half(), nn.Linear(64, 16).half()

    def reference(x: Tensor, mask: Tensor) -> Tensor:
        h = F.gelu(proj(x)) * mask.unsqueeze(-1)
        return head(h.sum(1) / mask.sum(1, keepdim=True).clamp(min=1))

    def candidate(x: Tensor, mask: Tensor) -> Tensor:
        h = F.gelu(proj(x)) * mask.unsqueeze(-1)
        return head(h.mean(1))

    lengths = torch.tensor([40, 37, 31, 38])
    return candidate, reference, (torch.randn(4, 40, 64).half(), torch.arange(40) < lengths[:, None])


def plain_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """What the vendor's kernel should compute."""
    return (q @ k.transpose(-1, -2) * scale).softmax(-1) @ v


@fault(ops=("blind::padded_attn", "blind.padded_attn.default"))
def vendor_attention_scale_of_padded_head() -> tuple[Any, ...]:
    """The vendor's kernel pads the head size from 24 to 32 and takes 32 ** -0.5 as the scale."""
    torch.manual_seed(10)
    import numpy as np

    def kernel(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:  # noqa: ARG001 - the fault
        a, b, c = (t.detach().numpy() for t in (q, k, v))
        scores = a @ b.swapaxes(-1, -2) / np.float32(math.sqrt(32))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return torch.from_numpy((weights / weights.sum(-1, keepdims=True) @ c).astype("float32"))

    attend = rs.vendor_op("blind::padded_attn", kernel, reference=plain_attention)
    layer = Attention(dim=96, n=4, gain=2.0).eval()

    def reference(x: Tensor) -> Tensor:
        return layer.o(merge(plain_attention(*layer.qkv(x), 24**-0.5)))  # type: ignore[call-arg]

    def candidate(x: Tensor) -> Tensor:
        return layer.o(merge(attend(*layer.qkv(x), 24**-0.5)))

    return candidate, reference, torch.randn(2, 24, 96)


@fault(ops=("aten.mul.Tensor",))
def one_head_two_percent_off() -> tuple[Any, ...]:
    """The dequantization scale of one of eight heads is 2 % too large."""
    torch.manual_seed(11)
    layer = Attention(dim=128, n=8).eval()
    scales = torch.ones(8)
    scales[3] = 1.02

    def reference(x: Tensor) -> Tensor:
        return layer.o(merge(F.scaled_dot_product_attention(*layer.qkv(x))))

    def candidate(x: Tensor) -> Tensor:
        out = F.scaled_dot_product_attention(*layer.qkv(x))
        return layer.o(merge(out * scales.view(1, 8, 1, 1)))

    return candidate, reference, torch.randn(2, 24, 128)


@fault(ops=("aten.native_layer_norm.default", "aten.layer_norm.default"))
def layer_norm_eps_of_another_library() -> tuple[Any, ...]:
    """Eps is 1e-6 instead of 1e-5, which shows with small activations."""
    torch.manual_seed(12)
    embed, norm, head = nn.Linear(64, 96, bias=False), nn.LayerNorm(96), nn.Linear(96, 32)
    with torch.no_grad():
        embed.weight.mul_(0.05)

    def reference(x: Tensor) -> Tensor:
        return head(norm(embed(x)))

    def candidate(x: Tensor) -> Tensor:
        return head(F.layer_norm(embed(x), (96,), norm.weight, norm.bias, 1e-6))

    return candidate, reference, torch.randn(16, 64)


@fault(ops=("aten.slice.Tensor", "aten.neg.default", "aten.cat.default", "aten.stack.default", "aten.mul.Tensor"))
def rotary_interleaved_instead_of_halves() -> tuple[Any, ...]:
    """Rotary embedding rotates neighbouring channels; the weights are made for halves."""
    torch.manual_seed(13)
    layer = Attention(gain=2.0).eval().bfloat16()
    angles = torch.arange(32)[:, None] * 100.0 ** (-torch.arange(8) / 8)
    cos = torch.cat((angles, angles), -1).cos().bfloat16()
    sin = torch.cat((angles, angles), -1).sin().bfloat16()

    def by_halves(x: Tensor) -> Tensor:
        return torch.cat((-x[..., 8:], x[..., :8]), -1)

    def by_pairs(x: Tensor) -> Tensor:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)

    def attend(x: Tensor, rotate: Callable[[Tensor], Tensor]) -> Tensor:
        q, k, v = layer.qkv(x)
        q, k = q * cos + rotate(q) * sin, k * cos + rotate(k) * sin
        return layer.o(merge(F.scaled_dot_product_attention(q, k, v, is_causal=True)))

    x = torch.randn(2, 32, 64).bfloat16()
    return (lambda x: attend(x, by_pairs)), (lambda x: attend(x, by_halves)), x


@fault(ops=("aten.repeat.default", "aten.bmm.default", "aten.matmul.default"))
def gqa_heads_repeated_in_wrong_order() -> tuple[Any, ...]:
    """Key heads are tiled (0 1 0 1) instead of repeated (0 0 1 1)."""
    torch.manual_seed(14)
    q_proj, kv_proj, o_proj = (nn.Linear(64, n).bfloat16() for n in (64, 64, 64))

    def attend(x: Tensor, spread: Callable[[Tensor], Tensor]) -> Tensor:
        q = heads(q_proj(x), 4)
        k, v = (spread(heads(part, 2)[..., :16]) for part in kv_proj(x).chunk(2, -1))
        return o_proj(merge((q @ k.transpose(-1, -2) / 4).softmax(-1) @ v))

    def reference(x: Tensor) -> Tensor:
        return attend(x, lambda t: t.repeat_interleave(2, 1))

    def candidate(x: Tensor) -> Tensor:
        return attend(x, lambda t: t.repeat(1, 2, 1, 1))

    return candidate, reference, torch.randn(2, 20, 64).bfloat16()


@fault(ops=("aten.native_layer_norm.default", "aten.layer_norm.default", "aten.addmm.default", "aten.linear.default"))
def residual_missing_in_second_block() -> tuple[Any, ...]:
    """The residual of the MLP of the second of three blocks is lost."""
    torch.manual_seed(15)
    model = nn.Sequential(Block(), Block(), Block()).eval().bfloat16()

    def candidate(x: Tensor) -> Tensor:
        x = model[0](x)
        x = x + model[1].attn(model[1].ln1(x))
        x = model[1].mlp(model[1].ln2(x))
        return model[2](x)

    return candidate, model, torch.randn(2, 16, 64).bfloat16()


@fault(ops=("aten.convolution.default", "aten.conv2d.default", "aten.mkldnn_convolution.default"))
def batch_norm_folded_with_old_variance() -> tuple[Any, ...]:
    """The second batch norm was folded with an old running variance, about 10 % away."""
    torch.manual_seed(16)
    net = conv_net()
    old = net[4].running_var * (1 + 0.1 * torch.randn(32)).clamp(0.7, 1.3)
    w1, b1 = folded(net[0], net[1], net[1].running_var)
    w2, b2 = folded(net[3], net[4], old)

    def candidate(x: Tensor) -> Tensor:
        x = F.relu(F.conv2d(x, w1, b1, padding=1))
        return net[6](F.relu(F.conv2d(x, w2, b2, padding=1)))

    return candidate, net, torch.randn(2, 3, 16, 16)


@fault(ops=("aten.gather.default", "aten.index.Tensor", "aten.sub.Tensor", "aten.clamp.default"))
def last_token_index_off_by_one() -> tuple[Any, ...]:
    """The hidden state after the last token is taken."""
    torch.manual_seed(17)
    embed, block, head = nn.Embedding(100, 64), Block().eval(), nn.Linear(64, 32)

    def reference(ids: Tensor, lengths: Tensor) -> Tensor:
        h = block(embed(ids))
        last = (lengths - 1).clamp(0, ids.shape[1] - 1)
        return head(h.gather(1, last[:, None, None].expand(-1, 1, 64)).squeeze(1))

    def candidate(ids: Tensor, lengths: Tensor) -> Tensor:
        h = block(embed(ids))
        last = lengths.clamp(0, ids.shape[1] - 1)
        return head(h.gather(1, last[:, None, None].expand(-1, 1, 64)).squeeze(1))

    return candidate, reference, (torch.randint(0, 100, (4, 24)), torch.tensor([5, 23, 12, 17]))


@fault(ops=("aten.add_.Tensor",))
def fused_add_norm_writes_its_argument() -> tuple[Any, ...]:
    """The fused residual add writes into the caller's tensor; the returned result is right."""
    torch.manual_seed(18)
    proj, norm = nn.Linear(96, 96).bfloat16(), nn.LayerNorm(96).bfloat16()

    def reference(x: Tensor) -> Tensor:
        return norm(x + proj(x))

    def candidate(x: Tensor) -> Tensor:
        return norm(x.add_(proj(x)))

    return candidate, reference, torch.randn(8, 96).bfloat16()


@fault(ops=("aten.masked_fill.Scalar", "aten._softmax.default", "aten.softmax.int"))
def nan_for_fully_masked_sample() -> tuple[Any, ...]:
    """-inf as the mask value makes NaN for a sample that is all padding."""
    torch.manual_seed(19)
    layer = Attention().eval()

    def attend(x: Tensor, mask: Tensor, value: float) -> Tensor:
        q, k, v = layer.qkv(x)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return layer.o(merge(scores.masked_fill(~mask[:, None, None, :], value).softmax(-1) @ v))

    def reference(x: Tensor, mask: Tensor) -> Tensor:
        return attend(x, mask, torch.finfo(torch.float32).min)

    def candidate(x: Tensor, mask: Tensor) -> Tensor:
        return attend(x, mask, float("-inf"))

    mask = torch.arange(20) < torch.tensor([20, 0, 11])[:, None]
    return candidate, reference, (torch.randn(3, 20, 64), mask)


@fault(ops=("aten.sort.default", "aten.index.Tensor", "aten.mul.Tensor", "aten.sum.dim_IntList"))
def moe_experts_sorted_without_their_weights() -> tuple[Any, ...]:
    """The ids of the two experts of a token are sorted, their routing weights are not."""
    torch.manual_seed(20)
    router, experts = nn.Linear(64, 4), torch.randn(4, 64, 48) / 8
    rows = torch.arange(32)[:, None]

    def route(x: Tensor, order: Callable[[Tensor], Tensor]) -> Tensor:
        weights, ids = router(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        every = torch.einsum("nc,ecd->ned", x, experts)
        return (every[rows, order(ids)] * weights.unsqueeze(-1)).sum(1)

    def reference(x: Tensor) -> Tensor:
        return route(x, lambda ids: ids)

    def candidate(x: Tensor) -> Tensor:
        return route(x, lambda ids: ids.sort(-1).values)

    return candidate, reference, torch.randn(32, 64)


# --- variants ---


@variant
def online_softmax_in_blocks() -> tuple[Any, ...]:
    """Attention with a running maximum and float32 sums; eager rounds scores and weights to bfloat16."""
    torch.manual_seed(101)
    layer = Attention(gain=2.0).eval().bfloat16()

    def reference(x: Tensor) -> Tensor:
        q, k, v = layer.qkv(x)
        return layer.o(merge((q @ k.transpose(-1, -2) / 4).softmax(-1) @ v))

    def candidate(x: Tensor) -> Tensor:
        q, k, v = (t.float() for t in layer.qkv(x))
        top = torch.full_like(q[..., :1], float("-inf"))
        total, out = torch.zeros_like(top), torch.zeros_like(q)
        for kb, vb in zip(k.split(16, 2), v.split(16, 2), strict=True):
            scores = q @ kb.transpose(-1, -2) / 4
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            weights, shrink = (scores - new).exp(), (top - new).exp()
            total, out, top = total * shrink + weights.sum(-1, keepdim=True), out * shrink + weights @ vb, new
        return layer.o(merge((out / total).to(x.dtype)))

    return candidate, reference, torch.randn(2, 64, 64).bfloat16()


@variant
def fused_qkv_projection() -> tuple[Any, ...]:
    """One product for query, key and value, the scale folded into the query's weight."""
    torch.manual_seed(102)
    layer = Attention(dim=128, n=4).eval().bfloat16()  # head size 32: the folded scale is not a power of two
    scale = 32**-0.5
    weight = torch.cat((layer.q.weight * scale, layer.k.weight, layer.v.weight)).detach()
    bias = torch.cat((layer.q.bias * scale, layer.k.bias, layer.v.bias)).detach()

    def candidate(x: Tensor) -> Tensor:
        q, k, v = (heads(t, 4) for t in F.linear(x, weight, bias).chunk(3, -1))
        keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2)).masked_fill(~keep, float("-inf"))
        return layer.o(merge(scores.softmax(-1) @ v))

    return candidate, layer, torch.randn(2, 24, 128).bfloat16()


@variant
def sdpa_for_math_attention_fp16() -> tuple[Any, ...]:
    """scaled_dot_product_attention instead of explicit products."""
    torch.manual_seed(103)
    layer = Attention(gain=2.0).eval().half()

    def candidate(x: Tensor) -> Tensor:
        return layer.o(merge(F.scaled_dot_product_attention(*layer.qkv(x), is_causal=True)))  # type: ignore[misc]

    return candidate, layer, torch.randn(2, 40, 64).half()


@variant
def silu_written_with_tanh_bf16() -> tuple[Any, ...]:
    """silu(x) = x / 2 * (1 + tanh(x / 2)), rounded to bfloat16 at each step."""
    torch.manual_seed(104)
    gate, up, down = (nn.Linear(a, b, bias=False).bfloat16() for a, b in ((64, 160), (64, 160), (160, 64)))

    def reference(x: Tensor) -> Tensor:
        return down(F.silu(gate(x)) * up(x))

    def candidate(x: Tensor) -> Tensor:
        half = gate(x) * 0.5
        return down((half + half * half.tanh()) * up(x))

    return candidate, reference, torch.randn(12, 64).bfloat16()


@variant
def welford_layer_norm() -> tuple[Any, ...]:
    """Mean and variance merged from six chunks (Chan), of values far from zero."""
    torch.manual_seed(105)
    proj, norm = nn.Linear(96, 96), nn.LayerNorm(96)
    with torch.no_grad():
        proj.bias.add_(30.0)
        norm.weight.normal_(1, 0.2)

    def candidate(x: Tensor) -> Tensor:
        h = proj(x)
        count, mean, m2 = 0, torch.zeros_like(h[..., :1]), torch.zeros_like(h[..., :1])
        for part in h.split(16, -1):
            m = part.mean(-1, keepdim=True)
            s = (part - m).square().sum(-1, keepdim=True)
            delta, n = m - mean, count + 16
            mean = mean + delta * (16 / n)
            m2 = m2 + s + delta.square() * (count * 16 / n)
            count = n
        return (h - mean) * torch.rsqrt(m2 / count + norm.eps) * norm.weight + norm.bias

    return candidate, (lambda x: norm(proj(x))), torch.randn(10, 96)


@variant
def split_k_with_bf16_partials() -> tuple[Any, ...]:
    """A product over 256 in four parts, each rounded to bfloat16 and added in bfloat16."""
    torch.manual_seed(106)
    up, down = nn.Linear(64, 256).bfloat16(), nn.Linear(256, 64).bfloat16()

    def candidate(x: Tensor) -> Tensor:
        h = F.gelu(up(x))
        total = down.bias.expand(x.shape[0], -1)
        for part, weight in zip(h.split(64, -1), down.weight.split(64, -1), strict=True):
            total = total + part @ weight.t()
        return total

    return candidate, (lambda x: down(F.gelu(up(x)))), torch.randn(16, 64).bfloat16()


@variant
def moe_grouped_by_expert() -> tuple[Any, ...]:
    """Tokens are gathered by expert and scattered back; eager computes every expert for every token."""
    torch.manual_seed(107)
    router = nn.Linear(64, 8).bfloat16()
    experts = (torch.randn(8, 64, 48) / 8).bfloat16()

    def pick(x: Tensor) -> tuple[Tensor, Tensor]:
        weights, ids = router(x).softmax(-1).topk(2, -1)
        return weights / weights.sum(-1, keepdim=True), ids

    def reference(x: Tensor) -> Tensor:
        weights, ids = pick(x)
        full = torch.zeros(x.shape[0], 8, dtype=x.dtype).scatter(1, ids, weights)
        return (torch.einsum("nc,ecd->ned", x, experts) * full.unsqueeze(-1)).sum(1)

    def candidate(x: Tensor) -> Tensor:
        weights, ids = pick(x)
        out = torch.zeros(x.shape[0], 48, dtype=torch.float32)
        for e in range(8):
            rows, column = (ids == e).nonzero(as_tuple=True)
            out.index_add_(0, rows, (x[rows] @ experts[e]).float() * weights[rows, column].float().unsqueeze(-1))
        return out.to(x.dtype)

    return candidate, reference, torch.randn(40, 64).bfloat16()


@variant
def einsum_for_matmul_fp16() -> tuple[Any, ...]:
    """The same attention with einsum in another layout, and the division after the second product."""
    torch.manual_seed(108)
    layer = Attention(gain=1.5).eval().half()

    def candidate(x: Tensor) -> Tensor:
        q, k, v = (p(x).unflatten(-1, (4, 16)) for p in (layer.q, layer.k, layer.v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q * 0.25, k)
        keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        out = torch.einsum("bhqk,bkhd->bqhd", weights, v) / weights.sum(-1).transpose(1, 2).unsqueeze(-1)
        return layer.o(out.flatten(2))

    return candidate, layer, torch.randn(2, 28, 64).half()


@variant
def channels_last_convolutions() -> tuple[Any, ...]:
    """The network in channels_last."""
    torch.manual_seed(109)
    net = conv_net()
    other = copy.deepcopy(net).to(memory_format=torch.channels_last)
    return (lambda x: other(x.contiguous(memory_format=torch.channels_last))), net, torch.randn(2, 3, 16, 16)


@variant
def compiled_with_aot_eager() -> tuple[Any, ...]:
    """Two blocks in bfloat16, compiled with aot_eager."""
    torch.manual_seed(110)
    model = nn.Sequential(Block(), Block()).eval().bfloat16()
    return torch.compile(model, backend="aot_eager"), model, torch.randn(2, 12, 64).bfloat16()


@variant
def float32_inside_where_eager_is_bf16() -> tuple[Any, ...]:
    """Norms, softmax, GELU and the residual stream in float32; eager rounds every step to bfloat16."""
    torch.manual_seed(111)
    model = nn.Sequential(Block(), Block(), Block()).eval().bfloat16()
    wide = copy.deepcopy(model).float()

    def candidate(x: Tensor) -> Tensor:
        return wide(x.float()).to(x.dtype)

    return candidate, model, torch.randn(2, 16, 64).bfloat16()


@variant
def argmax_takes_the_last_of_ties() -> tuple[Any, ...]:
    """Half of the vocabulary repeats the other half; the last of equal scores is taken, not the first."""
    torch.manual_seed(112)
    block, head = Block().eval(), nn.Linear(64, 80, bias=False)
    with torch.no_grad():
        head.weight[40:] = head.weight[:40]

    def reference(x: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(block(x))
        return logits, logits.argmax(-1)

    def candidate(x: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(block(x))
        return logits, 79 - logits.flip(-1).argmax(-1)

    return candidate, reference, torch.randn(2, 10, 64)


@variant
def convolution_as_im2col() -> tuple[Any, ...]:
    """A strided convolution as unfold and a product."""
    torch.manual_seed(113)
    conv, head = nn.Conv2d(8, 24, 3, stride=2, padding=1), nn.Linear(24, 10)

    def reference(x: Tensor) -> Tensor:
        return head(F.gelu(conv(x)).mean((2, 3)))

    def candidate(x: Tensor) -> Tensor:
        columns = F.unfold(x, 3, padding=1, stride=2)
        h = conv.weight.flatten(1) @ columns + conv.bias[:, None]
        return head(F.gelu(h).mean(2))

    return candidate, reference, torch.randn(2, 8, 16, 16)


@variant
def batch_norm_folded_bf16() -> tuple[Any, ...]:
    """Both batch norms folded into the convolutions; the new weights are rounded to bfloat16."""
    torch.manual_seed(114)
    net = conv_net().bfloat16()
    w1, b1 = folded(net[0], net[1], net[1].running_var)
    w2, b2 = folded(net[3], net[4], net[4].running_var)

    def candidate(x: Tensor) -> Tensor:
        x = F.relu(F.conv2d(x, w1, b1, padding=1))
        return net[6](F.relu(F.conv2d(x, w2, b2, padding=1)))

    return candidate, net, torch.randn(2, 3, 16, 16).bfloat16()


@variant
def recurrence_as_parallel_scan() -> tuple[Any, ...]:
    """H = a * h + b over 64 steps by doubling in float32; eager is a loop in bfloat16."""
    torch.manual_seed(115)
    decay, value, out = (nn.Linear(32, 32).bfloat16() for _ in range(3))

    def reference(x: Tensor) -> Tensor:
        a, b = torch.sigmoid(decay(x) + 2), value(x)
        state, states = torch.zeros_like(b[:, 0]), []
        for t in range(x.shape[1]):
            state = a[:, t] * state + b[:, t]
            states.append(state)
        return out(torch.stack(states, 1))

    def candidate(x: Tensor) -> Tensor:
        a, b = torch.sigmoid(decay(x) + 2).float(), value(x).float()
        step = 1
        while step < x.shape[1]:
            before_a = F.pad(a[:, :-step], (0, 0, step, 0), value=1.0)
            before_b = F.pad(b[:, :-step], (0, 0, step, 0))
            a, b = a * before_a, b + a * before_b
            step *= 2
        return out(b.to(x.dtype))

    return candidate, reference, torch.randn(2, 64, 32).bfloat16()


@variant
def lora_merged_into_weight() -> tuple[Any, ...]:
    """The adapter is merged into the weight, which is rounded to bfloat16 again."""
    torch.manual_seed(116)
    base, head = nn.Linear(96, 96).bfloat16(), nn.Linear(96, 32).bfloat16()
    a, b = (torch.randn(8, 96) / 10).bfloat16(), (torch.randn(96, 8) / 12).bfloat16()
    merged = (base.weight.float() + 0.5 * b.float() @ a.float()).bfloat16().detach()

    def reference(x: Tensor) -> Tensor:
        return head(F.silu(base(x) + 0.5 * F.linear(F.linear(x, a), b)))

    def candidate(x: Tensor) -> Tensor:
        return head(F.silu(F.linear(x, merged, base.bias)))

    return candidate, reference, torch.randn(12, 96).bfloat16()


@variant
def chunked_cross_entropy() -> tuple[Any, ...]:
    """The loss over vocabulary chunks with float32 logits; eager rounds the logits to bfloat16."""
    torch.manual_seed(117)
    body, head = nn.Linear(64, 64).bfloat16(), nn.Linear(64, 256, bias=False).bfloat16()
    with torch.no_grad():
        head.weight.mul_(4)

    def reference(x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(head(F.gelu(body(x))).float(), target)

    def candidate(x: Tensor, target: Tensor) -> Tensor:
        h = F.gelu(body(x)).float()
        total = torch.full((x.shape[0],), float("-inf"))
        for weight in head.weight.split(64):
            total = torch.logaddexp(total, (h @ weight.float().t()).logsumexp(-1))
        right = (h * head.weight[target].float()).sum(-1)
        return (total - right).mean()

    return candidate, reference, (torch.randn(48, 64).bfloat16(), torch.randint(0, 256, (48,)))


@variant
def captured_step_with_kv_cache() -> tuple[Any, ...]:
    """A decoding step with its own KV cache, captured; the position is a tensor."""
    torch.manual_seed(118)
    model = DecodeStep().eval()
    return rs.capture(copy.deepcopy(model), backend="record"), model, torch.randn(2, 64)


@variant
def vendor_rms_norm_rounds_once() -> tuple[Any, ...]:
    """A vendor's RMS norm rounds once at the end; the model rounds to float16 before the weight too."""
    torch.manual_seed(119)
    import numpy as np

    def kernel(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        rows = x.detach().numpy().astype("float32")
        scale = 1 / np.sqrt((rows * rows).mean(-1, keepdims=True, dtype="float32") + np.float32(eps))
        return torch.from_numpy((rows * scale * weight.detach().numpy().astype("float32")).astype("float16"))

    def plain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)

    op = rs.vendor_op("blind::rms_norm", kernel, reference=plain)
    norm, proj = RMSNorm(96).half(), nn.Linear(96, 64).half()
    return (lambda x: proj(op(x, norm.weight, 1e-6))), (lambda x: proj(norm(x))), torch.randn(14, 96).half()


@variant
def rotary_as_complex_product() -> tuple[Any, ...]:
    """Rotary embedding of pairs as a product of complex numbers."""
    torch.manual_seed(120)
    layer = Attention(gain=2.0).eval()
    angles = torch.arange(32)[:, None] * 100.0 ** (-torch.arange(8) / 8)
    cos, sin, turn = angles.cos(), angles.sin(), torch.polar(torch.ones_like(angles), angles)

    def real(x: Tensor) -> Tensor:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    def complex_product(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (8, 2)).contiguous())
        return torch.view_as_real(pairs * turn).flatten(-2)

    def attend(x: Tensor, rotate: Callable[[Tensor], Tensor]) -> Tensor:
        q, k, v = layer.qkv(x)
        return layer.o(merge(F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)))

    return (lambda x: attend(x, complex_product)), (lambda x: attend(x, real)), torch.randn(2, 32, 64)
