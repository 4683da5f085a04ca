"""The programs of the runner have the same results with a captured step."""

from typing import Any

import pytest

import rocsolid as rs

pytest.importorskip("torch")
import torch
from benchmarks.cell import fast
from benchmarks.loops import Generates, Stream, Trains
from benchmarks.models import Built, Step

pytestmark = pytest.mark.torch


def with_captured_step(monkeypatch: pytest.MonkeyPatch, built: Built) -> tuple[Any, Any]:
    """The results in eager, and with the step captured by the record backend."""
    from benchmarks import cell

    def captured(model: Any, _: Any, step: Any) -> Any:
        return rs.capture(model, backend="record", backward=step.trains, buckets=step.buckets)

    monkeypatch.setattr(cell, "METHODS", {"rs.capture": captured})
    with torch.no_grad():
        eager = [built.model(*built.inputs) for _ in range(2)]
        call = fast("rs.capture", built, built.model, built.inputs)
        captured_results = [call(*built.inputs) for _ in range(2)]
    report = built.model.step.report()
    assert report.replays > 0, report
    return torch.stack(eager), torch.stack(captured_results)


def test_stream_of_lengths_matches_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.denoiser import Encoder

    sizes = {name: rs.Bucket.multiples_of(16, 32, dim=1, pad=0) for name in ("ids", "mask")}
    inputs = torch.randint(1, 9, (1, 32)), torch.ones(1, 32, dtype=torch.bool)
    model = Stream(Encoder(layers=1, width=16, heads=2).eval(), requests=5, longest=32)
    eager, captured_results = with_captured_step(monkeypatch, Built(model, inputs, Step(buckets=sizes)))
    assert torch.allclose(eager, captured_results, atol=1e-5)


def test_training_step_matches_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    built = Built(Trains(torch.nn.Linear(4, 4)), (torch.randn(2, 4),), Step(trains=True))
    eager, captured_results = with_captured_step(monkeypatch, built)
    assert eager.shape[1] == 3, "the loss and two gradients"
    assert torch.allclose(eager, captured_results)


def test_generation_matches_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.LlamaConfig(**small, num_key_value_heads=1, vocab_size=50)
    model = Generates(transformers.LlamaForCausalLM(config).eval(), new_tokens=4)
    eager, captured_results = with_captured_step(monkeypatch, Built(model, (torch.randint(1, 50, (1, 3)),), Step()))
    assert eager.shape[-1] == 7
    assert torch.equal(eager, captured_results)
