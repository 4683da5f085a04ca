"""The run in higher precision: exact, with the same random numbers, and without a trace in the model."""

from typing import Any

import pytest
import torch
from torch import nn

from rocsolid.numerics import measure_error, result_leaves
from rocsolid.reference import NoReference, Referee, ReferenceRun, reference_of, run_in_higher_precision

pytestmark = pytest.mark.torch


class Block(nn.Module):  # type: ignore[misc]
    """Attention with a cache, batch norm that updates its statistics, dropout, a counter and an integer result."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm, self.drop = nn.Linear(16, 48), nn.BatchNorm1d(16), nn.Dropout(0.3)
        self.register_buffer("cache", torch.zeros(2, 8, 16))

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        self.cache[:, : x.shape[1]] = k
        y = nn.functional.scaled_dot_product_attention(q, self.cache[:, : x.shape[1]], v)
        y = self.drop(self.norm(y.transpose(1, 2)).transpose(1, 2))
        return y, y.softmax(-1, dtype=torch.float32).argmax(-1)


def reference(function: Any, *args: Any, **options: Any) -> ReferenceRun:
    ran = run_in_higher_precision(function, args, {}, **options)
    assert isinstance(ran, ReferenceRun), ran
    return ran


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("inference", [False, True])
def test_is_closer_to_the_truth_and_changes_nothing(dtype: Any, *, inference: bool) -> None:
    torch.manual_seed(0)
    model, x = Block().to(dtype), torch.randn(2, 8, 16).to(dtype)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.inference_mode(inference), torch.no_grad():
        torch.manual_seed(1)
        state = torch.get_rng_state()
        ran = reference(model, x)
        assert torch.equal(torch.get_rng_state(), state)
        rounded = reference(model, x, round_to=dtype)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        eager = model(x)

    assert ran.dtype is torch.float64
    exact = ran.leaves[0].value
    error = measure_error(eager[0], exact, dtype=dtype).relative_l2
    assert 0 < error < 10 * torch.finfo(dtype).eps
    assert 0.2 < measure_error(rounded.leaves[0].value, exact, dtype=dtype).relative_l2 / error < 5
    assert measure_error(ran.value_of(model.cache), model.cache.double()).relative_l2 < torch.finfo(dtype).eps


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(4, 4, 3), (2, 4, 9)),
        (nn.Conv2d(4, 4, 3), (2, 4, 9, 9)),
        (nn.ConvTranspose1d(4, 4, 3), (2, 4, 9)),
        (nn.LSTM(4, 4), (5, 2, 4)),
        (nn.GRUCell(4, 4), (2, 4)),
        (nn.Bilinear(4, 4, 3), (2, 4)),
        (nn.PReLU(4), (2, 4, 9)),
        (nn.InstanceNorm1d(4, affine=True, track_running_stats=True), (2, 4, 9)),
        (nn.MultiheadAttention(4, 2), (5, 2, 4)),
        (nn.TransformerEncoderLayer(4, 2, 8), (5, 2, 4)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
@pytest.mark.parametrize("training", [False, True])
def test_layers_whose_types_torch_checks_in_python_or_before_dispatch_run(
    module: nn.Module, shape: tuple[int, ...], *, training: bool
) -> None:
    module = module.to(torch.bfloat16).train(training)
    x = torch.randn(shape, dtype=torch.bfloat16)
    inputs = (x,) * {nn.Bilinear: 2, nn.MultiheadAttention: 3}.get(type(module), 1)

    ran = reference(module, *inputs)

    with torch.no_grad():
        eager = result_leaves(module(*inputs))
    error = measure_error(eager[0].value, ran.leaves[0].value)
    assert ran.leaves[0].value.dtype is torch.float64
    assert training or error.relative_l2 < 0.02
    assert all(p.dtype is torch.bfloat16 for p in module.parameters())


def test_a_generator_that_is_passed_is_left_as_it_was() -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()

    def noisy(x: Any) -> Any:
        return x + torch.randn(x.shape, generator=generator, dtype=x.dtype)

    ran = reference(noisy, torch.zeros(8))

    assert torch.equal(generator.get_state(), before)
    assert torch.equal(ran.leaves[0].value.float(), noisy(torch.zeros(8)))


def test_writes_through_views_of_an_argument_stay_in_the_run() -> None:
    cache, counts = torch.zeros(2, 4), torch.zeros(3, dtype=torch.int64)

    def step(x: Any, cache: Any) -> Any:
        cache[:, 1] = x
        counts[0] += 1
        return cache.sum() + counts[0]

    ran = reference(step, torch.ones(2), cache)

    assert float(ran.leaves[0].value) == 3.0
    assert not cache.any()
    assert not counts.any()
    assert ran.value_of(cache)[:, 1].tolist() == [1.0, 1.0]


def test_an_operator_without_a_wide_kernel_runs_in_its_own_precision_and_is_noted() -> None:
    @torch.library.custom_op("verify_tests::only_bfloat16", mutates_args=())
    def only_bfloat16(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.bfloat16:
            msg = "only bfloat16"
            raise RuntimeError(msg)
        return x * 2

    ran = reference(lambda x: only_bfloat16(x) + 1, torch.ones(4, dtype=torch.bfloat16))

    assert ran.leaves[0].value.dtype is torch.float64
    assert ran.notes == ("verify_tests::only_bfloat16 ran in bfloat16: it has no kernel for float64",)


def test_a_model_that_cannot_run_wide_has_no_reference_and_says_why() -> None:
    def reads_bits(x: Any) -> Any:
        if x.dtype is not torch.float32:
            msg = "only float32"
            raise TypeError(msg)
        return x

    ran = run_in_higher_precision(reads_bits, (torch.ones(2),), {})

    assert ran == NoReference("TypeError: only float32")


def test_float32_is_used_when_memory_is_short() -> None:
    def large(x: Any) -> Any:
        if x.dtype is torch.float64:
            raise MemoryError
        return x * 2

    assert reference(large, torch.ones(2, dtype=torch.bfloat16)).dtype is torch.float32


def test_why_there_is_no_reference_is_part_of_the_verdict() -> None:
    def run(x: Any) -> Any:
        if x.dtype == torch.float64:
            msg = "no kernel for double"
            raise RuntimeError(msg)
        return x

    x = torch.ones(4)
    referee = Referee(reference_of(run, (x,), {}))
    (check,) = referee.judge(result_leaves(x * 1.5), result_leaves(run(x)))

    assert not check.verdict.passes
    assert "could not be run in higher precision: RuntimeError: no kernel for double" in check.why
