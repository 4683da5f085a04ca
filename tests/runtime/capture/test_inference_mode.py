"""A replay returns what eager returns, in every grad mode, for many operators: views, copies, writes in place, `out=`."""

import copy
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")
import numpy as np
import torch
from torch.nn import functional

pytestmark = pytest.mark.torch


class Mode(NamedTuple):
    """The grad mode of the calls, and the mode that the inputs are made in."""

    calls: Callable[[], Any]
    inputs: Callable[[], Any]


MODES = {
    "no_grad": Mode(torch.no_grad, torch.no_grad),
    "grad": Mode(torch.enable_grad, torch.enable_grad),
    "inference": Mode(torch.inference_mode, torch.inference_mode),
    "inference, inputs made outside": Mode(torch.inference_mode, torch.no_grad),
}
every_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


def make_inputs(function: Callable[..., Any], device: str) -> list[Any]:
    """Return new inputs for the parameters of a function, by their names."""
    makers: dict[str, Callable[[], Any]] = {
        "x": lambda: torch.randn(4, 6, device=device),
        "y": lambda: torch.randn(4, 6, device=device),
        "square": lambda: torch.randn(6, 6, device=device),
        "heads": lambda: torch.randn(2, 2, 5, 4, device=device),
        "image": lambda: torch.randn(2, 3, 8, 8, device=device),
        "ids": lambda: torch.randint(0, 4, (5,), device=device),
        "mask": lambda: torch.rand(4, 6, device=device) > 0.5,
        "count": lambda: torch.randint(1, 9, (1,), device=device),
    }
    return [makers[name]() for name in inspect.signature(function).parameters]


def check(
    target: Any, captured_function: Callable[..., Any], eager_function: Callable[..., Any], mode: Mode, calls: int = 4
) -> Any:
    """Call both functions with the same inputs, several times; compare results and written inputs. Returns the report."""
    captured = target.capture(captured_function)
    for _ in range(calls):
        with mode.inputs():
            inputs = make_inputs(eager_function, target.device)
            others = [tensor.clone() for tensor in inputs]
        with mode.calls():
            expected, got = eager_function(*inputs), captured(*others)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(others, inputs)
    return captured.report()


def written_in_place(x: Any) -> Any:
    y = x * 2
    y.add_(1).mul_(x)
    return y


def view_written_in_place(x: Any) -> Any:
    y = x * 2
    y.view(-1)[3:9].add_(1)
    y.t()[1].mul_(3)
    return y


def reshape_written_in_place(x: Any) -> Any:
    y = x * 2
    y.reshape(-1).add_(1)  # a view
    y.t().reshape(-1).add_(5)  # a copy
    return y


def contiguous_written_in_place(x: Any) -> Any:
    y = x * 2
    y.contiguous().add_(1)  # the tensor itself
    y.t().contiguous().add_(5)  # a copy
    return y


def chunks_written_in_place(x: Any) -> Any:
    y = x * 2
    first, second = y.chunk(2, 1)
    first.add_(second)
    for row in y.unbind(0):
        row[0] = row[1]
    for part in y.split([1, 5], 1):
        part.mul_(2)
    return y


def out_functions(x: Any, y: Any) -> Any:
    added, product = torch.empty_like(x), torch.empty(6, 6, device=x.device)
    torch.add(x, y, out=added)
    torch.matmul(x.t(), y, out=product)
    values, indices = torch.empty(4, device=x.device), torch.empty(4, dtype=torch.int64, device=x.device)
    torch.max(x, 1, out=(values, indices))
    torch.cat([x, y], out=torch.empty(8, 6, device=x.device))
    return added, product, values, indices


def slices_assigned(x: Any, y: Any) -> Any:
    z = torch.zeros_like(x)
    z[:, 0] = x[:, 1]
    z[1:3, 2:] = y[1:3, 2:] * 2
    z[..., -1] = 7
    z[0] = y.sum(1)[0]
    return z


def foreach(x: Any, y: Any) -> Any:
    a, b = torch._foreach_mul([x, y], 2.0)
    torch._foreach_add_([a, b], [y, x])
    torch._foreach_copy_([a[0], b[0]], [x[1], y[1]])
    return a, b, torch._foreach_norm([a, b])


def scattered(x: Any, ids: Any) -> Any:
    y = torch.zeros(4, 6, device=x.device)
    y.scatter_(0, ids.clamp(max=3)[:4, None].expand(4, 6), x)
    y.scatter_add_(1, torch.zeros(4, 6, dtype=torch.int64, device=x.device), x)
    y.index_add_(0, ids, x[:1].expand(5, 6))
    return y, y.index_select(0, ids), y.gather(1, ids[:4, None])


def index_assigned(x: Any, ids: Any) -> Any:
    y = x * 1
    y[ids] = 3.0
    y.index_copy_(1, torch.arange(2, device=x.device), x[:, 2:4])
    y.index_fill_(0, ids[:1], 2.0)
    return y


def strided_written_in_place(x: Any) -> Any:
    y = x * 2
    y.as_strided((3, 2), (2, 1), 1).add_(1)
    return y, y.as_strided((4, 4), (4, 1))


def complex_views(x: Any) -> Any:
    z = torch.view_as_complex(x.reshape(4, 3, 2))
    w = (z * 2j).conj()
    return torch.view_as_real(w.resolve_conj()), z.real + w.imag, z.abs()


def normalized(image: Any) -> Any:
    weight = torch.ones(3, device=image.device)
    mean, variance = image.mean((0, 2, 3)), image.var((0, 2, 3))
    return (
        functional.batch_norm(image, mean, variance, weight, weight),
        functional.instance_norm(image),
        functional.group_norm(image, 3),
        functional.layer_norm(image, (8, 8)),
    )


def written_inputs(x: Any, y: Any) -> Any:
    x.add_(y)
    y[:, 0] = x[:, 1]
    y.view(-1)[4:8].zero_()
    return x * y


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contiguous of a transpose": lambda x: (x * 2).t().contiguous() + 1,
    "index list": lambda x: x[:, [0, 2, 4]] * 2,
    "tensor of a list": lambda x: x + torch.tensor([1.0] * 6, device=x.device),
    "view": lambda x: (x * 2).view(2, 12) + x.view(2, -1),
    "reshape of a view": lambda x: (x + 1).reshape(3, 8) * 2,
    "reshape that copies": lambda x: (x + 1).t().reshape(-1) * 2,
    "flatten": lambda image: (image + 1).flatten(1) * image.transpose(1, 3).flatten(2).sum(),
    "unflatten": lambda x: (x * 2).unflatten(1, (2, 3)).transpose(0, 1).flatten() + 1,
    "squeeze and unsqueeze": lambda x: (x * 2).unsqueeze(0).squeeze().unsqueeze(-1) + x[..., None],
    "permute and movedim": lambda image: (image * 2).permute(0, 2, 3, 1).movedim(1, 2).swapaxes(0, 1).contiguous(),
    "to dtype": lambda x: (x * 2).to(torch.float64).sum(0) + x.to(torch.float32).double(),
    "to the same dtype": lambda x: (x * 2).to(torch.float32).add_(1),
    "casts": lambda x: ((x * 9).int(), (x * 2).half().float(), x.bfloat16() + 1, (x > 0).long(), x.type_as(x.int())),
    "to a copy": lambda x: (x * 2).to(torch.float32, copy=True).add_(1),
    "channels_last": lambda image: image.to(memory_format=torch.channels_last).relu() + image.contiguous() * 2,
    "chunk": lambda x: [part * 2 for part in (x + 1).chunk(3, 1)],
    "split": lambda x: torch.cat((x + 1).split([2, 4], dim=1)[::-1], dim=1) * 2,
    "tensor_split": lambda x: [part + 1 for part in (x * 2).tensor_split(4, 1)],
    "unbind": lambda x: torch.stack((x * 2).unbind(1)[::2]) + 1,
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x + 1, y * 2).relu(),
    "einsum of three": lambda x, y, square: torch.einsum("ij,jk,lk->il", x + 1, square, y),
    "matmul": lambda x, y: (x + 1) @ (y * 2).t() + torch.matmul(x[:, None], y[..., None])[..., 0],
    "matmul of vectors": lambda x, y: (x[0] * 2) @ y[1] + (x + 1) @ y[0],
    "matmul in batches": lambda heads: torch.matmul(heads * 2, heads.mT) + (heads @ heads[0, 0].t()).sum(),
    "linear": lambda x, square: functional.linear(x * 2, square + 1, square[0]),
    "bilinear and inner": lambda x, y: (
        torch.inner(x + 1, y) + torch.outer(x[:, 0], y[:, 0]) + torch.kron(x[:2], y[:2])[0, 0]
    ),
    "conv2d": lambda image: functional.conv2d(image * 2, image[:, :, :3, :3] + 1, padding=1),
    "conv2d, padding='same'": lambda image: functional.conv2d(image, image[:, :, :3, :3] + 1, padding="same"),
    "conv1d and conv_transpose": lambda image: functional.conv_transpose2d(
        image + 1, image.transpose(0, 1)[:, :, :2, :2]
    ),
    "normalization": normalized,
    "attention": lambda heads: functional.scaled_dot_product_attention(heads * 2, heads, heads + 1),
    "causal attention": lambda heads: functional.scaled_dot_product_attention(heads, heads, heads + 1, is_causal=True),
    "softmax and losses": lambda x, y: (
        x.softmax(1),
        functional.log_softmax(x + y, -1),
        functional.cross_entropy(x, y.softmax(1)),
        functional.mse_loss(x, y),
    ),
    "activations": lambda x: (functional.gelu(x), functional.silu(x * 2), functional.hardswish(x), functional.glu(x)),
    "index": lambda x, ids: (x * 2)[ids] + x[ids, :][:, ids[:1]],
    "index with slices": lambda x: (x * 2)[1:, ::2] + x[None, :3, -1:].expand(1, 3, 3)[0],
    "where": lambda x, mask: torch.where(mask, x * 2, 0.0) + torch.where(x > 0, x, -x),
    "cat and stack": lambda x, y: torch.cat([x * 2, torch.stack([x, y]).sum(0), torch.hstack([x[:, :3], y[:, 3:]])]),
    "pad": lambda image: (
        functional.pad(image * 2, (1, 2)),
        functional.pad(image, (1, 1, 1, 1), mode="reflect"),
        functional.pad(image, (2, 1, 0, 3), mode="circular"),
        functional.pad(image, (1, 0), value=3.0) + 1,
    ),
    "interpolate": lambda image: (
        functional.interpolate(image * 2, scale_factor=2.0),
        functional.interpolate(image, size=(5, 5), mode="bilinear", align_corners=False),
    ),
    "pooling": lambda image: (
        functional.max_pool2d(image * 2, 2),
        functional.avg_pool2d(image, 2) + 1,
        functional.adaptive_avg_pool2d(image, 1).flatten(1),
        functional.adaptive_max_pool2d(image, 2),
    ),
    "dropout in eval": lambda x: functional.dropout(x * 2, 0.5, training=False) + 1,
    "embedding": lambda x, ids: functional.embedding(ids, x * 2) + functional.embedding_bag(ids[:4, None], x).sum(),
    "in place": written_in_place,
    "in place on a view": view_written_in_place,
    "in place on reshape": reshape_written_in_place,
    "in place on contiguous": contiguous_written_in_place,
    "in place on chunks": chunks_written_in_place,
    "in place on as_strided": strided_written_in_place,
    "in place with expand": lambda x: (x * 2).add_(x[0].expand(4, 6)).sub_(x[:, :1].expand_as(x)),
    "copy_": lambda x, y: torch.empty_like(x).copy_(x * 2).t().copy_(y.t()) + 1,
    "fill_ and zero_": lambda x: (x * 2).fill_(3).add_(x) + torch.ones_like(x).zero_() + torch.full_like(x, 2),
    "out=": out_functions,
    "slices assigned": slices_assigned,
    "complex views": complex_views,
    "view of another dtype": lambda x: (x * 2).view(torch.int32) + 1,
    "foreach": foreach,
    "unfold": lambda x, image: ((x * 2).unfold(1, 2, 2) + 1, functional.unfold(image * 2, 3)),
    "roll, flip, rot90": lambda x: (x * 2).roll(1, 0).flip(1) + x.roll(2) + x.rot90(2) + x.fliplr(),
    "repeat and tile": lambda x: (x * 2).repeat(2, 1) + x.tile(2, 1) + x.repeat_interleave(2, 0),
    "cumsum": lambda x: (x * 2).cumsum(1) + x.cumprod(0) + x.logcumsumexp(1),
    "topk": lambda x: (x * 2).topk(3, 1),
    "sort": lambda x: ((x * 2).sort(1, descending=True), x.argsort(0), x.median(1), x.kthvalue(2, 1)),
    "scatter_": scattered,
    "index assigned": index_assigned,
    "masked_fill": lambda x, mask: (x * 2).masked_fill(mask, -1.0).masked_fill_(~mask, 5.0) + x.tril() + x.triu(1),
    "mask assigned": lambda x, mask: torch.where(mask, x, 0).index_put_((mask,), torch.ones((), device=x.device)),
    "one_hot": lambda ids: (ids[:, None] == torch.arange(4, device=ids.device)).float() * 2,
    "factories": lambda x: (
        x + torch.arange(6, device=x.device) + torch.linspace(0, 1, 6, device=x.device) + x.new_ones(6)
    ),
    "reductions": lambda x: (x.std(1), x.var(0), x.norm(), x.amax(1), x.all(), x.mean(), x.argmax(1), x.logsumexp(0)),
    "clamp and lerp": lambda x, y: (x * 2).clamp(-1, 1).clamp_(max=y.abs()) + torch.lerp(x, y, 0.5) + x.addcmul(x, y),
    "addmm, baddbmm": lambda x, y, square: (
        torch.addmm(square, x.t(), y) + torch.baddbmm(square[None], x.t()[None], y[None])
    ),
    "grid_sample": lambda image: functional.grid_sample(
        image * 2, image[:, :2].permute(0, 2, 3, 1), align_corners=False
    ),
    "pixel_shuffle": lambda image: (
        functional.pixel_unshuffle(image * 2, 2)
        + functional.pixel_shuffle(functional.pixel_unshuffle(image, 2), 2).mean()
    ),
    "cdist and cosine": lambda x, y: (
        torch.cdist(x * 2, y) + functional.cosine_similarity(x, y) + functional.normalize(x)[:, :4]
    ),
    "meshgrid, broadcast": lambda x: (
        torch.meshgrid(x[0] * 2, x[1], indexing="ij")[0] + torch.broadcast_to(x[2], (6, 6))
    ),
    "diagonal": lambda square: (
        (square * 2).diagonal().add_(1) + square.diag() + square.trace() + torch.diag_embed(square[0])[0]
    ),
    "detach and clone": lambda x: (x * 2).detach().add_(1) + x.clone().t().clone().t() + x.data * 2,
    "inputs returned": lambda x, y: (x, y.t(), x[1:], (x + y).t()),
    "inputs written": written_inputs,
    "integers": lambda ids, count: (ids * count).cumsum(0) // 2 + ids.bitwise_and(3) + (ids == count).sum(),
}
# What a capture on a GPU cannot do either, with the reason.
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "mask index": (lambda x, mask: x[mask].sum(), "data-dependent shape"),
    "nonzero": (lambda x: (x > 0).nonzero(), "data-dependent shape"),
    "masked_select": (lambda x, mask: x.masked_select(mask).sum(), "data-dependent shape"),
    "unique": (lambda ids: ids.unique(), "data-dependent shape"),
    "item": (lambda x: x * x.sum().item(), "host sync"),
    "branch": (lambda x: x * 2 if x.sum() in (1, 2) else x * x.sum().item(), "host sync"),
    "tolist": (lambda ids: ids * max(ids.tolist()), "host sync"),
    "bincount": (lambda ids: torch.bincount(ids, minlength=4), "data-dependent shape"),
    "tensor of an array": (lambda x: x + torch.tensor(np.ones(6), device=x.device), "host copy"),
}


@every_mode
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_replay_returns_what_eager_returns(target: Any, mode: Mode, name: str) -> None:
    report = check(target, FUNCTIONS[name], FUNCTIONS[name], mode)

    if target.backend == "device" and name == "mask assigned":  # there it waits for the GPU
        assert [refusal.reason.value for refusal in report.refusals] == ["host sync"]
        return
    assert report.replays > 0, report
    assert not report.refusals, report


@every_mode
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_is_refused_with_the_same_reason(target: Any, mode: Mode, name: str) -> None:
    function, reason = REFUSED[name]
    # Values that are read again may differ in three calls.
    report, outside = (check(target, function, function, each, calls=6) for each in (mode, MODES["no_grad"]))

    expected = {reason, *(["host sync"] if target.backend == "device" else [])}
    assert {refusal.reason.value for refusal in report.refusals} <= expected
    assert report.refusals
    assert [refusal.message for refusal in report.refusals] == [refusal.message for refusal in outside.refusals]
    assert report.replays == 0


def branch(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x


def branch_after_writes(x: Any) -> Any:
    x.mul_(2)
    y = x + torch.rand_like(x)
    if not torch.isfinite(y).all():
        return x.zero_()
    return y if x.sum() > 0 else x.add_(y)


@every_mode
@pytest.mark.parametrize("function", [branch, branch_after_writes])
def test_a_branch_on_values_is_captured_and_another_branch_runs_in_eager(
    target: Any, mode: Mode, function: Callable[[Any], Any]
) -> None:
    """The verification scales the values, which does not change their signs: it always takes the branch of the first call."""
    captured = target.capture(function)
    for number in range(16):
        with mode.inputs():
            x = target.randn(4, 6).abs() * (-1 if number in (5, 14) else 1)
            if number == 9 and function is branch_after_writes:
                x[0, 0] = torch.nan
            other = x.clone()
        with mode.calls():
            torch.manual_seed(number)
            expected, drawn = function(x), target.randn(3)
            torch.manual_seed(number)
            got = captured(other)
            assert torch.equal(target.randn(3), drawn)
        torch.testing.assert_close(got, expected, equal_nan=True)
        torch.testing.assert_close(other, x, equal_nan=True)
    report, in_eager = captured.report(), 2 + (function is branch_after_writes)
    assert (report.refusals, [found.how for found in report.workarounds]) == ((), ["read"])
    assert (report.replays, report.eager_calls["host sync"]) == (15 - in_eager, in_eager)


class Counter(torch.nn.Module):  # type: ignore[misc]
    """Writes to its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4, 6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        self.total.mul_(0.5).add_(x)
        self.total.view(-1)[:3] += 1
        self.steps += 1
        return self.linear(self.total) * self.steps


MODULES: dict[str, Callable[[], Any]] = {
    "linear": lambda: torch.nn.Linear(6, 3),
    "perceptron": lambda: torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).eval(),
    "dropout in eval": lambda: torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout()).eval(),
    "batch norm in eval": lambda: torch.nn.BatchNorm1d(6).eval(),
    "batch norm in training": lambda: torch.nn.BatchNorm1d(6),
    "transformer layer": lambda: torch.nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval(),
    "attention": lambda: SelfAttention().eval(),
    "recurrent": lambda: torch.nn.LSTM(6, 3, num_layers=2),
    "buffers written": Counter,
}


class SelfAttention(torch.nn.Module):  # type: ignore[misc]
    """Attention of a sequence with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        result, weights = self.attention(x[None], x[None], x[None])
        return result + 1, weights


@pytest.mark.filterwarnings("ignore:RNN module weights")  # the copies that are compared are not compacted
@every_mode
@pytest.mark.parametrize("name", MODULES)
def test_a_module_returns_and_writes_what_eager_does(target: Any, mode: Mode, name: str) -> None:
    eager = target.module(MODULES[name]()).requires_grad_(False)
    captured = copy.deepcopy(eager)

    def run_eager(x: Any) -> Any:
        return eager(x)

    report = check(target, captured, run_eager, mode)

    assert report.replays > 0, report
    torch.testing.assert_close(captured.state_dict(), eager.state_dict())


@every_mode
def test_one_hot_checks_its_values_on_the_cpu_only(target: Any, mode: Mode) -> None:
    """With `num_classes`, torch reads the values of a CPU tensor to check them; those of a GPU tensor it does not read."""

    def function(ids: Any) -> Any:
        return functional.one_hot(ids, 4) * 2

    report = check(target, function, function, mode)

    reasons = [refusal.reason.value for refusal in report.refusals]
    assert (report.replays, reasons) == ((0, ["host sync"]) if target.backend == "record" else (2, []))


@pytest.mark.parametrize("name", ["contiguous of a transpose", "linear", "index", "inputs returned"])
def test_inputs_made_in_inference_mode_are_used_outside(target: Any, name: str) -> None:
    report = check(target, FUNCTIONS[name], FUNCTIONS[name], Mode(torch.no_grad, torch.inference_mode))

    assert report.replays > 0, report


def test_one_function_is_used_in_and_outside_inference_mode(target: Any) -> None:
    def function(x: Any) -> Any:
        return (x * 2).t().contiguous().flatten() + 1

    captured = target.capture(function)
    for _ in range(3):
        x = target.randn(4, 6)
        with torch.inference_mode():
            torch.testing.assert_close(captured(x), function(x))
            inside = captured(target.randn(4, 6))
        outside = captured(x)
        torch.testing.assert_close(outside, function(x))
        assert inside.is_inference()
        assert not outside.is_inference()
    report = captured.report()
    assert len(report.graphs) == 2
    assert report.replays == 7
    assert not report.refusals


class Decorated(SelfAttention):
    """Turns inference mode on by itself."""

    @torch.inference_mode()
    def forward(self, x: Any) -> Any:
        return super().forward(x.t().contiguous().t())


@every_mode
@pytest.mark.parametrize("options", [{}, {"eager_modules": ["attention"]}, {"outputs": "alias"}], ids=str)
def test_a_function_that_turns_inference_mode_on(target: Any, mode: Mode, options: dict[str, Any]) -> None:
    model = target.module(Decorated()).eval()
    captured = target.capture(model, **options)
    for _ in range(4):
        x = target.randn(4, 6)
        with mode.calls():
            torch.testing.assert_close(captured(x), model(x))
    assert captured.report().replays == 3
