"""Lengths that change: padded to a few sizes, cut back where results follow, and nowhere else."""

import inspect
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import UsageError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def tokens(place: Any, length: int, batch: int = 2) -> Any:
    return torch.randint(1, 50, (batch, length), device=place.device)


class Encoder(torch.nn.Module):  # type: ignore[misc]
    """Per token, pooled with a mask, and a table whose size happens to be that of a bucket."""

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


def test_results_that_follow_the_length_are_cut_and_no_others(place: Any) -> None:
    model = place.module(Encoder())
    g = place.capture(model, buckets=BUCKETS, verify=rs.every(1000))
    for length in (100, 60, 100, 128, 127, 1, 33, 128, 20, 100):
        ids, mask = tokens(place, length), torch.ones(2, length, device=place.device)
        agree(g(ids, mask), model(ids, mask))
    assert len(g.report().graphs) == 3
    assert g.report().replays > 0


def test_nothing_is_left_of_a_longer_call(place: Any) -> None:
    running = place.capture(
        lambda x: (x * 2, x.sum() * 0 + x.abs().max()), buckets={"x": rs.Bucket(0, [8])}, verify="off"
    )
    for length in (3, 8, 2, 5, 1):
        x = place.randn(length)
        doubled, largest = running(x)
        assert torch.equal(doubled, x * 2)
        assert torch.equal(largest, x.abs().max()), "padding of zeros hides nothing, a stale tail would"


def test_a_sum_over_padding_is_refused_and_named(place: Any) -> None:
    g = place.capture(lambda x: {"each": x + 1, "total": (x + 1).sum()}, buckets={"x": rs.Bucket(dim=0, sizes=[16])})
    for _ in range(2):
        x = place.randn(10)
        assert torch.allclose(g(x)["total"], (x + 1).sum())
    (refusal,) = g.report().refusals
    assert refusal.reason.value == "padding"
    assert "result['total'] differs" in refusal.detail
    assert "result['each']" not in refusal.detail


def test_beyond_the_largest_bucket_and_of_no_length(place: Any) -> None:
    eager = place.capture(lambda x: x * 2, buckets={"x": rs.Bucket(dim=0, sizes=[8])})
    grows = place.capture(lambda x: x * 2, buckets={"x": rs.Bucket(dim=0, sizes=[8], over="grow")})
    for length in (8, 9, 20, 0, 9, 20):
        x = place.randn(length)
        assert torch.equal(eager(x), x * 2)
        assert torch.equal(grows(x), x * 2)
    assert len(eager.report().graphs) == 1
    assert eager.report().eager_calls["bucket"] == 5
    assert sorted(graph.key["argument 'x'"].split()[0] for graph in grows.report().graphs) == [
        "float32[16]",
        "float32[24]",
        "float32[8]",
    ]


def test_lengths_that_are_equal_by_chance_are_told_apart(place: Any) -> None:
    def join(text: Any, image: Any) -> Any:
        return {
            "text": text * 2,
            "image": image * 3,
            "both": torch.cat([text.sum(0, keepdim=True), image.sum(0, keepdim=True)]),
        }

    sizes = {"text": rs.Bucket(dim=0, sizes=[8, 16]), "image": rs.Bucket(dim=0, sizes=[8, 16])}
    g = place.capture(join, buckets=sizes)
    for a, b in ((5, 5), (5, 7), (7, 5), (6, 6), (5, 12), (8, 8), (8, 3)):
        text, image = place.randn(a, 3), place.randn(b, 3)
        agree(g(text, image), join(text, image))


def test_a_compiled_function_of_whole_numbers_is_checked_at_the_sizes_it_was_compiled_for(place: Any) -> None:
    seen: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.extend(x.shape[0] for x in inputs if isinstance(x, torch.Tensor))
        return graph.forward

    compiled = torch.compile(lambda ids: ids * 2 + 1, backend=backend, dynamic=False)
    g = place.capture(lambda ids: compiled(ids) * 1, buckets={"ids": rs.Bucket(dim=0, sizes=[8, 16])})
    for length in (3, 4, 5, 10, 11, 12):
        ids = torch.randint(1, 9, (length,), device=place.device)
        assert torch.equal(g(ids), ids * 2 + 1)
    assert set(seen) == {8, 16}
    assert g.report().checks == 6


def test_two_dimensions_of_one_argument(place: Any) -> None:
    def attend(x: Any, bias: Any) -> Any:
        return torch.softmax(bias, -1) @ x

    pad = -1e9
    g = place.capture(
        attend,
        buckets={"x": rs.Bucket(0, [8, 16]), "bias": [rs.Bucket(0, [8, 16], pad), rs.Bucket(1, [8, 16], pad)]},
    )
    for length in (5, 8, 12, 5, 16, 3):
        x, bias = place.randn(length, 4), place.randn(length, length)
        assert torch.allclose(g(x, bias), attend(x, bias), atol=1e-5)
    assert len(g.report().graphs) == 2


def test_a_result_that_cannot_be_cut_is_refused(place: Any) -> None:
    g = place.capture(lambda x: x[::3] * 2, buckets={"x": rs.Bucket(dim=0, sizes=[16])})
    x = place.randn(10)
    for _ in range(2):
        assert torch.equal(g(x), x[::3] * 2)
    assert "dimension 0 of result is 6 for length 16 and 4 for length 10" in g.report().refusals[0].detail


def test_a_result_twice_as_long_is_cut_twice_as_far(place: Any) -> None:
    g = place.capture(lambda x: torch.cat([x, x], -1).reshape(-1, 2), buckets={"x": rs.Bucket(dim=0, sizes=[16])})
    for length in (10, 16, 3):
        x = place.randn(length, 2)
        assert torch.equal(g(x), torch.cat([x, x], -1).reshape(-1, 2))


def test_padded_results_on_request(place: Any) -> None:
    g = place.capture(lambda x: x * 2, buckets={"x": rs.Bucket(dim=0, sizes=[16])}, unpad="never", verify="off")
    x = place.randn(10)
    g(x)
    assert g(x).shape == (16,)


def test_buffers_of_a_bucket_are_handed_out_at_the_calls_length(place: Any) -> None:
    g, x = place.capture(lambda x: x * 2, buckets={"x": rs.Bucket(dim=0, sizes=[16])}), place.randn(10)
    (buffer,) = g.inputs(x)
    assert buffer.shape == (10,)
    buffer.copy_(x)
    assert torch.equal(g(buffer), x * 2)


def test_wrong_buckets_are_told() -> None:
    for wrong in ([], [0, 4], [-1]):
        with pytest.raises(UsageError):
            rs.Bucket(dim=0, sizes=wrong)
    with pytest.raises(UsageError, match="runs 'eager', or lets it 'grow'"):
        rs.Bucket(dim=0, sizes=[4], over="cut")


def test_a_compiled_function_is_not_compiled_for_every_length(place: Any) -> None:
    seen: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(inputs[0].shape[0] if isinstance(inputs[0], torch.Tensor) else -1)
        return graph.forward

    compiled = torch.compile(lambda x: x * 2 + 1, backend=backend, dynamic=False)
    g = place.capture(lambda x: compiled(x) * 1, buckets={"x": rs.Bucket(dim=0, sizes=[8, 16])})
    for length in (3, 4, 5, 10, 11, 12):
        x = place.randn(length)
        assert torch.allclose(g(x), x * 2 + 1)
    assert seen == [8, 16]


def test_a_compiled_module_is_called_by_its_own_names(place: Any) -> None:
    class Doubled(torch.nn.Module):  # type: ignore[misc]
        def forward(self, ids: Any, times: int = 2) -> Any:
            return ids * times

    compiled = torch.compile(Doubled(), backend="eager", dynamic=False)
    g = place.capture(compiled, buckets={"ids": rs.Bucket(dim=0, sizes=[8])})
    for length in (3, 5):
        assert torch.equal(g(x := place.randn(length)), x * 2)
    assert g.report().replays == 1
    assert list(inspect.signature(g).parameters) == ["ids", "times"]


def test_buckets_for_a_name_that_the_call_does_not_have_are_told(place: Any) -> None:
    g = place.capture(lambda ids: ids * 2, buckets={"tokens": rs.Bucket(dim=0, sizes=[8])})
    g(place.randn(3))
    (refusal,) = g.report().refusals
    assert refusal.detail == "buckets are given for 'tokens', and the call has no such tensor; it has 'ids'"
