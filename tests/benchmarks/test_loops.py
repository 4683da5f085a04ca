"""The programs of the runner answer the same with their step made fast."""

from typing import Any

import pytest

import rocsolid as rs

pytest.importorskip("torch")
import torch
from benchmarks.cell import fast
from benchmarks.loops import Generates, Stream, Trains
from benchmarks.models import Built, Step

pytestmark = pytest.mark.torch


def on_tape(monkeypatch: pytest.MonkeyPatch, built: Built) -> tuple[Any, Any]:
    """The answers of the model, and of the same with its step captured on the tape."""
    from benchmarks import cell

    def captured(model: Any, _: Any, step: Any) -> Any:
        return rs.capture(model, backend="record", backward=step.trains, buckets=step.buckets)

    monkeypatch.setattr(cell, "METHODS", {"rs.capture": captured})
    with torch.no_grad():
        truth = [built.model(*built.inputs) for _ in range(2)]
        call = fast("rs.capture", built, built.model, built.inputs)
        answers = [call(*built.inputs) for _ in range(2)]
    report = built.model.step.report()
    assert report.replays > 0, report
    return torch.stack(truth), torch.stack(answers)


def test_stream_of_lengths_matches_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.denoiser import Encoder

    sizes = {name: rs.Bucket.every(16, 32, dim=1, pad=0) for name in ("ids", "mask")}
    inputs = torch.randint(1, 9, (1, 32)), torch.ones(1, 32, dtype=torch.bool)
    model = Stream(Encoder(layers=1, width=16, heads=2).eval(), requests=5, longest=32)
    truth, answers = on_tape(monkeypatch, Built(model, inputs, Step(buckets=sizes)))
    assert torch.allclose(truth, answers, atol=1e-5)


def test_training_step_matches_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    built = Built(Trains(torch.nn.Linear(4, 4)), (torch.randn(2, 4),), Step(trains=True))
    truth, answers = on_tape(monkeypatch, built)
    assert truth.shape[1] == 3, "the loss and two gradients"
    assert torch.allclose(truth, answers)


def test_generation_matches_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.LlamaConfig(**small, num_key_value_heads=1, vocab_size=50)
    model = Generates(transformers.LlamaForCausalLM(config).eval(), new_tokens=4)
    truth, answers = on_tape(monkeypatch, Built(model, (torch.randint(1, 50, (1, 3)),), Step()))
    assert truth.shape[-1] == 7
    assert torch.equal(truth, answers)
