"""The zoo: an outcome for every kind of model, from processes that may hang or crash."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.zoo import changes, page, summary
from tests.support import ROOT, clean_environ

LIBRARY = """
import os, time, torch
from torch import nn
__version__ = "1.0"
class Waits(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum().item() > 1e9 else x
class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.waits, self.last = nn.Linear(4, 4), Waits(), nn.Linear(4, 4)
    def forward(self, x):
        return self.last(self.waits(self.first(x)))
class Does(nn.Linear):
    calls = 0
    def __init__(self, what):
        super().__init__(4, 4)
        self.what = what
    def forward(self, x):
        Does.calls += 1
        if Does.calls > 2 or self.what is fail:  # eager runs twice
            self.what()
        return super().forward(x)
def fail():
    raise ValueError("no such size")
MODELS = {
    "linear": lambda: nn.Linear(4, 4),
    "around": Around,
    "waits": Waits,
    "fails": lambda: Does(fail),
    "ends": lambda: Does(os.abort),
    "sleeps": lambda: Does(lambda: time.sleep(600)),
    "starts slowly": lambda: time.sleep(600),
}
def names():
    return list(MODELS)
def models(name):
    yield MODELS[name](), lambda: ((torch.randn(2, 4),), {})
"""
PROGRAM = """
import importlib
from benchmarks import zoo, zoo_models
for name in ("small_models", "not_there"):
    zoo_models.LIBRARIES[name] = (lambda: importlib.import_module("small_models").names(),
                                  lambda name: importlib.import_module("small_models").models(name))
zoo.main()
"""


def run(folder: Path, *args: str) -> str:
    """Run the benchmark over the models above, and return what it prints."""
    (folder / "small_models.py").write_text(LIBRARY)
    command = [sys.executable, "-c", PROGRAM, "--library", "small_models", "not_there"]
    command += ["--results", str(folder / "rows.jsonl"), "--evidence", str(folder / "zoo.json"), *args]
    environ = clean_environ()
    environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT), environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.torch
def test_every_outcome_is_recorded_and_a_second_run_continues(tmp_path: Path) -> None:
    printed = run(tmp_path, "--only", "[!s]*")
    assert "not_there not tried: No module named 'not_there'" in printed
    assert "5/5, 0 min left" in printed
    assert "2/2, 0 min left" in run(tmp_path, "--jobs", "2", "--deadline", "2")
    record = json.loads((tmp_path / "zoo.json").read_text())
    rows = {row["model"]: row for row in record["rows"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "linear": "captured",
        "around": "in segments",
        "waits": "refused",
        "fails": "eager fails",
        "ends": "crashed",
        "sleeps": "hung",
        "starts slowly": "eager fails",
    }
    assert rows["around"]["eager_modules"] == ["Waits"]
    assert rows["waits"]["reason"] == "host sync"
    assert rows["fails"]["message"] == "no such size"
    assert "| all | 1 | 1 | 1 | 0 | 1 | 1 | 2 | 40.0 |" in summary(record["rows"])
    # Only what was not captured whole, with another limit.
    again = ["--again", str(tmp_path / "zoo.json"), "--results", str(tmp_path / "again.jsonl"), "--deadline", "2"]
    printed = run(tmp_path, *again, "--only", "w*", "linear")
    assert "1/1, 0 min left" in printed
    assert "small_models waits: refused `x.sum().item()`" in printed
    earlier = {("small_models", name): "refused" for name in rows}
    assert changes(earlier, [rows["linear"], rows["waits"], rows["fails"]]).splitlines() == [
        "small_models fails: refused → eager fails no such size",
        "small_models linear: refused → captured ",
        f"small_models waits: refused {rows['waits']['message']}",
    ]
    assert not changes({}, [rows["linear"]])
    text = page([record])
    assert "| `around` | `x.sum().item()` copies a value to the CPU" in text
    assert "Captured (1): `linear`." in text


@pytest.mark.torch
def test_a_difference_from_eager_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    import rocsolid as rs
    from benchmarks import zoo

    def other_weights(model: Any, **_: Any) -> Any:
        with torch.no_grad():
            model.weight.mul_(1.01)
        return model

    monkeypatch.setattr(rs, "capture", other_weights)
    row = zoo.measure(iter([(torch.nn.Linear(4, 4), lambda: ((torch.randn(2, 4),), {}))]))
    assert row["outcome"] == "wrong"
    assert "call 1: result: relative error" in row["message"]


def test_sizes_and_layers_of_a_config_are_reduced() -> None:
    pytest.importorskip("torch")
    from benchmarks.zoo_models import _SIZES, shrink

    kinds = ["linear", "linear", "linear", "full"] * 6
    config = {"num_hidden_layers": 24, "layer_types": kinds, "hidden_size": 4096, "image_token_id": 90000}
    small = shrink({**config, "text_config": {"vocab_size": 5}, "names": {0: "a"}}, _SIZES)
    assert small["layer_types"] == ["linear", "linear", "full"]
    assert small["num_hidden_layers"] == 3
    assert (small["hidden_size"], small["text_config"], small["names"]) == (64, {"vocab_size": 5}, {0: "a"})
    assert small["image_token_id"] < 256
    small = shrink({"num_hidden_layers": 9, "head_dim": None, "per_layer_config": {"1": {"a": 5}, "7": {}}}, _SIZES)
    assert (small["head_dim"], small["per_layer_config"]) == (16, {"1": {"a": 5}})
    small = shrink({"num_attention_heads": 128, "num_key_value_heads": 128, "num_feat_extract_layers": 7}, _SIZES)
    assert small == {"num_attention_heads": 4, "num_key_value_heads": 4, "num_feat_extract_layers": 7}
    small = shrink({"hidden_size": 4096, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_expand": 2}, _SIZES)
    assert small["mamba_d_head"] * small["mamba_n_heads"] == 2 * small["hidden_size"]


@pytest.mark.torch
@pytest.mark.parametrize("name", ["minicpm3", "glm4v_moe_vision", "xmod"])
def test_a_model_of_transformers_runs_in_eager(name: str) -> None:
    pytest.importorskip("transformers.models.llama.modeling_llama")
    from benchmarks.zoo import _first_that_runs
    from benchmarks.zoo_models import transformers_models

    row, model, _ = _first_that_runs(transformers_models(name), "cpu")
    assert model is not None, row


@pytest.mark.torch
def test_generate_is_a_row_of_the_zoo() -> None:
    pytest.importorskip("transformers.models.llama.modeling_llama")
    from benchmarks.zoo import measure_program
    from benchmarks.zoo_programs import generate_names, generate_programs

    assert {"llama", "whisper", "llava"} <= set(generate_names())
    row = measure_program(generate_programs("llama"))
    assert (row["class"], row["outcome"]) == ("LlamaForCausalLM", "captured")


@pytest.mark.torch
def test_pipelines_are_found_next_to_the_tests_of_another_package(tmp_path: Path) -> None:
    """draccus, which lerobot needs, installs its tests as the package `tests`."""
    pytest.importorskip("diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    code = "from benchmarks.zoo_programs import pipeline_names; print(*pipeline_names())"
    environ = {**clean_environ(), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=200, check=False)
    assert "flux" in done.stdout.split(), done.stderr


@pytest.mark.torch
def test_every_outcome_of_a_program() -> None:
    import torch
    from benchmarks.zoo import measure_program
    from benchmarks.zoo_programs import ProgramAttempt

    from rocsolid.model.program_report import ProgramPart, ProgramReport

    class Fast:
        def __init__(self, factor: float, *parts: ProgramPart) -> None:
            self.factor, self.parts = factor, parts

        def explain(self) -> ProgramReport:
            return ProgramReport(name="Fast", parts=self.parts)

    def outcome(*parts: ProgramPart, factor: float = 1.0, near: bool = False) -> Any:
        def call(program: Any, seed: int) -> Any:
            return torch.ones(2) * seed * getattr(program, "factor", 1.0)

        attempt = ProgramAttempt(
            program=torch.nn.Linear(1, 1),
            call=call,
            optimize=lambda *_, **__: Fast(factor, *parts),
            is_near_tie=lambda *_: near,
        )
        row = measure_program(iter([attempt]))
        return row["outcome"], row.get("message", "")

    step, left = (ProgramPart(name="decode step", optimized=used, detail="why") for used in (True, False))
    loop = ProgramPart(name="decode loop", optimized=False, detail="1 call in the loop of transformers: a reason")
    assert outcome(step) == ("captured", "")
    assert outcome(step, loop) == ("in segments", "decode loop: 1 call in the loop of transformers: a reason")
    assert outcome(left) == ("refused", "decode step: why")
    assert outcome(step, factor=2.0)[0] == "wrong"
    assert outcome(step, factor=2.0, near=True)[0] == "captured"
    assert measure_program(iter([]))["outcome"] == "eager fails"
    rows: list[dict[str, Any]] = [
        {"library": "timm", "model": name, "outcome": "refused", "message": "why", "optimize: outcome": form}
        for name, form in (("a", "compiled"), ("b", "eager"))
    ]
    assert "| timm | 1 | 1 |" in summary(rows)
    text = page([{"device": "CPU", "date": "", "torch": "", "libraries": {"timm": "1"}, "command": "", "rows": rows}])
    assert "| `a` | why |  | compiled |" in text
