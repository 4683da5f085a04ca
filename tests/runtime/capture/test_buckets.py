"""Buckets: inputs are padded to a few sizes, and only results that depend on the length are unpadded."""

import inspect
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import UsageError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def tokens(target: Any, length: int, batch: int = 2) -> Any:
    return torch.randint(1, 50, (batch, length), device=target.device)


class Encoder(torch.nn.Module):  # type: ignore[misc]
    """Results per token, pooled with a mask, and a table whose size equals a bucket size."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.register_buffer("table", torch.arange(128.0))

    def forward(self, ids: Any, mask: Any) -> Any:
        hidden = self.embed(ids) * mask[..., None]
        pooled = hidden.sum(1) / mask.sum(1, keepdim=True)
        return {"tokens": hidden, "pooled": pooled, "table": self.table * 2 + pooled.sum() * 0, "count": mask.sum(1)}


BUCKETS = {"ids": rs.Bucket(dim=1, sizes=[32, 64, 128]), "mask": rs.Bucket(dim=1, sizes=[32, 64, 128])}


def agree(got: Any, truth: Any) -> None:
    assert got.keys() == truth.keys()
    for name in truth:
        assert got[name].shape == truth[name].shape, name
        assert torch.allclose(got[name], truth[name], atol=1e-5), name


def test_only_results_that_depend_on_the_length_are_unpadded(target: Any) -> None:
    model = target.module(Encoder())
    g = target.capture(model, buckets=BUCKETS, verify=rs.every(1000))
    for length in (100, 60, 100, 128, 127, 1, 33, 128, 20, 100):
        ids, mask = tokens(target, length), torch.ones(2, length, device=target.device)
        agree(g(ids, mask), model(ids, mask))
    assert len(g.report().graphs) == 3
    assert g.report().replays > 0


def test_a_shorter_call_does_not_see_values_of_a_longer_one(target: Any) -> None:
    running = target.capture(
        lambda x: (x * 2, x.sum() * 0 + x.abs().max()), buckets={"x": rs.Bucket(0, [8])}, verify="off"
    )
    for length in (3, 8, 2, 5, 1):
        x = target.randn(length)
        doubled, largest = running(x)
        assert torch.equal(doubled, x * 2)
        assert torch.equal(largest, x.abs().max()), "stale values of a longer call would change the maximum"


def test_a_result_that_includes_padding_is_refused_by_name(target: Any) -> None:
    g = target.capture(lambda x: {"each": x + 1, "total": (x + 1).sum()}, buckets={"x": rs.Bucket(dim=0, sizes=[16])})
    for _ in range(2):
        x = target.randn(10)
        assert torch.allclose(g(x)["total"], (x + 1).sum())
    (refusal,) = g.report().refusals
    assert refusal.reason.value == "padding"
    assert "padding (`x` to 16) changes the result: result['total']: relative error" in refusal.message
    assert "result['each']" not in refusal.message


def test_lengths_beyond_the_largest_bucket_and_empty_inputs(target: Any) -> None:
    eager = target.capture(lambda x: x * 2, buckets={"x": rs.Bucket(dim=0, sizes=[8])})
    grows = target.capture(lambda x: x * 2, buckets={"x": rs.Bucket(dim=0, sizes=[8], too_long="grow")})
    for length in (8, 9, 20, 0, 9, 20):
        x = target.randn(length)
        assert torch.equal(eager(x), x * 2)
        assert torch.equal(grows(x), x * 2)
    assert len(eager.report().graphs) == 1
    assert eager.report().eager_calls["bucket"] == 5
    assert sorted(graph.key["argument 'x'"].split()[0] for graph in grows.report().graphs) == [
        "float32[16]",
        "float32[24]",
        "float32[8]",
    ]


def test_arguments_with_equal_lengths_by_chance_stay_independent(target: Any) -> None:
    def join(text: Any, image: Any) -> Any:
        return {
            "text": text * 2,
            "image": image * 3,
            "both": torch.cat([text.sum(0, keepdim=True), image.sum(0, keepdim=True)]),
        }

    sizes = {"text": rs.Bucket(dim=0, sizes=[8, 16]), "image": rs.Bucket(dim=0, sizes=[8, 16])}
    g = target.capture(join, buckets=sizes)
    for a, b in ((5, 5), (5, 7), (7, 5), (6, 6), (5, 12), (8, 8), (8, 3)):
        text, image = target.randn(a, 3), target.randn(b, 3)
        agree(g(text, image), join(text, image))


def test_a_compiled_function_with_integer_inputs_is_checked_at_bucket_sizes(target: Any) -> None:
    seen: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.extend(x.shape[0] for x in inputs if isinstance(x, torch.Tensor))
        return graph.forward

    compiled = torch.compile(lambda ids: ids * 2 + 1, backend=backend, dynamic=False)
    g = target.capture(lambda ids: compiled(ids) * 1, buckets={"ids": rs.Bucket(dim=0, sizes=[8, 16])})
    for length in (3, 4, 5, 10, 11, 12):
        ids = torch.randint(1, 9, (length,), device=target.device)
        assert torch.equal(g(ids), ids * 2 + 1)
    assert set(seen) == {8, 16}
    assert g.report().checks == 6


def test_two_bucketed_dimensions_of_one_argument(target: Any) -> None:
    def attend(x: Any, bias: Any) -> Any:
        return torch.softmax(bias, -1) @ x

    pad = -1e9
    g = target.capture(
        attend,
        buckets={"x": rs.Bucket(0, [8, 16]), "bias": [rs.Bucket(0, [8, 16], pad), rs.Bucket(1, [8, 16], pad)]},
    )
    for length in (5, 8, 12, 5, 16, 3):
        x, bias = target.randn(length, 4), target.randn(length, length)
        assert torch.allclose(g(x, bias), attend(x, bias), atol=1e-5)
    assert len(g.report().graphs) == 2


def test_a_result_whose_relation_to_the_length_is_unknown_is_refused(target: Any) -> None:
    g = target.capture(lambda x: x[::3] * 2, buckets={"x": rs.Bucket(dim=0, sizes=[16])})
    x = target.randn(10)
    for _ in range(2):
        assert torch.equal(g(x), x[::3] * 2)
    assert (
        "dimension 0 of `result` is 6 for length 16 and 4 for length 10: cannot infer how the result depends on the length, so the padding cannot be removed"
        in g.report().refusals[0].message
    )


def test_a_result_of_twice_the_length_is_unpadded_to_twice_the_length(target: Any) -> None:
    g = target.capture(lambda x: torch.cat([x, x], -1).reshape(-1, 2), buckets={"x": rs.Bucket(dim=0, sizes=[16])})
    for length in (10, 16, 3):
        x = target.randn(length, 2)
        assert torch.equal(g(x), torch.cat([x, x], -1).reshape(-1, 2))


def test_unpad_never_returns_padded_results(target: Any) -> None:
    g = target.capture(lambda x: x * 2, buckets={"x": rs.Bucket(dim=0, sizes=[16])}, unpad="never", verify="off")
    x = target.randn(10)
    g(x)
    assert g(x).shape == (16,)


def test_inputs_of_a_bucket_have_the_length_of_the_call(target: Any) -> None:
    g, x = target.capture(lambda x: x * 2, buckets={"x": rs.Bucket(dim=0, sizes=[16])}), target.randn(10)
    (buffer,) = g.inputs(x)
    assert buffer.shape == (10,)
    buffer.copy_(x)
    assert torch.equal(g(buffer), x * 2)


def test_wrong_bucket_arguments_raise_usage_error() -> None:
    for wrong in ([], [0, 4], [-1]):
        with pytest.raises(UsageError):
            rs.Bucket(dim=0, sizes=wrong)
    with pytest.raises(UsageError, match=r"'cut'.*choose one of eager, grow"):
        rs.Bucket(dim=0, sizes=[4], too_long="cut")


def test_a_compiled_function_is_not_compiled_for_every_length(target: Any) -> None:
    seen: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(inputs[0].shape[0] if isinstance(inputs[0], torch.Tensor) else -1)
        return graph.forward

    compiled = torch.compile(lambda x: x * 2 + 1, backend=backend, dynamic=False)
    g = target.capture(lambda x: compiled(x) * 1, buckets={"x": rs.Bucket(dim=0, sizes=[8, 16])})
    for length in (3, 4, 5, 10, 11, 12):
        x = target.randn(length)
        assert torch.allclose(g(x), x * 2 + 1)
    assert seen == [8, 16]


def test_a_compiled_module_keeps_its_parameter_names(target: Any) -> None:
    class Doubled(torch.nn.Module):  # type: ignore[misc]
        def forward(self, ids: Any, times: int = 2) -> Any:
            return ids * times

    compiled = torch.compile(Doubled(), backend="eager", dynamic=False)
    g = target.capture(compiled, buckets={"ids": rs.Bucket(dim=0, sizes=[8])})
    for length in (3, 5):
        assert torch.equal(g(x := target.randn(length)), x * 2)
    assert g.report().replays == 1
    assert list(inspect.signature(g).parameters) == ["ids", "times"]


def test_a_bucket_for_an_unknown_argument_is_refused(target: Any) -> None:
    g = target.capture(lambda ids: ids * 2, buckets={"tokens": rs.Bucket(dim=0, sizes=[8])})
    g(target.randn(3))
    (refusal,) = g.report().refusals
    assert refusal.message.startswith("buckets= names `tokens`, but the call has no such tensor; it has `ids`\n")
