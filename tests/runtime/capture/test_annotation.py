"""`rs.capture(..., annotate=...)`: a profiler trace of each capture, and marks on the replays in the user's trace."""

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.capture.conftest import Target

pytest.importorskip("torch")
import torch
from torch.profiler import ProfilerActivity, profile

from rocsolid.errors import UsageError
from rocsolid.torchapi.graphs.graph_marks import graphs_marked

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*Profiler clears events"),  # torch 2.11, once for each process
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),  # in the thread of the backward pass
]
MARK = re.compile(r"rocsolid graph ([0-9a-f]+)$")


def traced(file: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    events: list[dict[str, Any]] = json.loads(data)["traceEvents"]
    return events


def marks(events: list[dict[str, Any]]) -> list[str]:
    return [found[1] for event in events if (found := MARK.match(str(event.get("name")))) and event.get("dur")]


def test_each_capture_is_written_with_shapes_modules_and_lines(target: Target, tmp_path: Path) -> None:
    model = target.module(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()))
    captured = target.capture(model, annotate=tmp_path / "captures")
    for rows in (2, 2, 3, 3):  # the first call of a process may import a library, and is then captured with the second
        x = target.randn(rows, 4)
        torch.testing.assert_close(captured(x), model(x))

    files = sorted((tmp_path / "captures").iterdir())
    assert [file.name.split("-")[0] for file in files] == ["Sequential", "Sequential"]
    assert len({mark for file in files for mark in marks(traced(file))}) == 2
    events = traced(files[0])
    products = [event for event in events if event.get("cat") == "cpu_op" and event["name"] == "aten::addmm"]
    assert products[0]["args"]["Input Dims"][1] in ([2, 4], [3, 4])
    names = {str(event.get("name")) for event in events}
    assert any(name.startswith("nn.Module: Linear") for name in names)
    assert any("test_annotation.py" in name for name in names)


def test_replays_are_marked_in_the_users_trace(target: Target, tmp_path: Path) -> None:
    captured = target.capture(lambda x: x * 2 + 1, annotate=tmp_path)
    x = target.randn(4)
    captured(x)
    (file,) = tmp_path.iterdir()
    with profile(activities=[ProfilerActivity.CPU]) as recorder:
        captured(x)
        captured(x)
    recorder.export_chrome_trace(str(tmp_path / "replay.json"))

    # On a GPU the trace of the capture has the mark twice: on the CPU and above the kernels.
    assert marks(traced(tmp_path / "replay.json")) == marks(traced(file))[:1] * 2


def test_a_capture_inside_the_users_profiler_only_leaves_its_mark(target: Target, tmp_path: Path) -> None:
    captured = target.capture(lambda x: x * 2 + 1, annotate=tmp_path / "captures")
    x = target.randn(4)
    with profile(activities=[ProfilerActivity.CPU]) as recorder:
        captured(x)
        captured(x)
    recorder.export_chrome_trace(str(tmp_path / "both.json"))

    assert not (tmp_path / "captures").exists()
    found = marks(traced(tmp_path / "both.json"))
    assert len(found) >= 2
    assert len(set(found)) == 1


def test_a_folder_that_cannot_be_written_costs_no_graph(
    target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    captured = target.capture(lambda x: x + 1, annotate=tmp_path / "file")
    x = target.randn(4)
    captured(x)

    torch.testing.assert_close(captured(x), x + 1)
    assert captured.report().replays == 1
    assert "the trace of a capture was not written" in caplog.text


def test_a_refused_capture_stops_the_profiler(target: Target, tmp_path: Path) -> None:
    captured = target.capture(lambda x: x * x.sum().item(), annotate=tmp_path)
    captured(target.randn(4))

    assert not list(tmp_path.iterdir())
    assert not torch.autograd._profiler_enabled()


def test_a_graph_that_is_larger_than_the_budget_leaves_no_trace(target: Target, tmp_path: Path) -> None:
    captured = target.capture(
        lambda x: x[0] + torch.zeros(4 << 20, device=x.device), annotate=tmp_path, memory_budget_bytes=1 << 20
    )
    captured(target.randn(4))

    assert [refusal.reason.value for refusal in captured.report().refusals] == ["memory budget"]
    assert not list(tmp_path.iterdir())


def test_an_attempt_that_was_given_up_leaves_no_trace(target: Target, tmp_path: Path) -> None:
    """The whole function is captured, and then its parts around the second module."""

    class Waits(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum().item() > 0 else x * -3

    model = target.module(torch.nn.Sequential(torch.nn.Linear(4, 4), Waits(), torch.nn.Linear(4, 4), Waits()))
    captured = target.capture(model, annotate=tmp_path)
    for _ in range(2):  # the first call of a process may import a library, and is then captured with the second
        captured(target.randn(2, 4))

    assert captured.report().workarounds
    assert len(list(tmp_path.iterdir())) == 2, (
        "a graph for each layer, and none for the empty one behind the last module"
    )


def test_a_profiler_that_fails_costs_no_graph(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = profile.stop

    def fails(self: Any) -> None:
        stop(self)
        msg = "cannot decode a name"
        raise RuntimeError(msg)

    monkeypatch.setattr(profile, "stop", fails)
    captured = target.capture(lambda x: x + 1, annotate=tmp_path)
    x = target.randn(4)
    captured(x)

    torch.testing.assert_close(captured(x), x + 1)
    assert captured.report().replays == 1
    assert "cannot decode a name" in caplog.text


def test_segments_and_backward_have_a_trace_for_each_graph(target: Target, tmp_path: Path) -> None:
    model = target.module(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)))
    captured = target.capture(model, annotate=tmp_path, eager_modules=["1"])
    captured(target.randn(2, 4))
    assert len(list(tmp_path.iterdir())) == 2

    with torch.enable_grad():
        step = target.capture(model, annotate=tmp_path / "step", backward=True)
        step(target.randn(2, 4)).sum().backward()
    assert len(list((tmp_path / "step").iterdir())) == 2


def test_annotate_takes_a_folder_or_a_flag(target: Target) -> None:
    with pytest.raises(UsageError, match="annotate"):
        target.capture(lambda x: x, annotate=3)


def test_graphs_of_others_are_marked_where_torch_has_hooks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Torch 2.14 and later call hooks when any graph is captured or replayed."""
    hooks: dict[str, Any] = {}
    for stage in ("capture_start", "capture_end", "replay_start", "replay_end"):

        def register(hook: Any, stage: str = stage) -> SimpleNamespace:
            hooks[stage] = hook
            return SimpleNamespace(remove=lambda: hooks.pop(stage))

        monkeypatch.setattr(torch.cuda.graphs, f"register_graph_{stage}_hook", register, raising=False)
    graph = SimpleNamespace()
    with graphs_marked(), profile(activities=[ProfilerActivity.CPU]) as recorder:
        for kind in ("capture", "replay", "replay"):
            hooks[f"{kind}_start"](graph)
            torch.ones(2) + 1
            hooks[f"{kind}_end"](graph)
    recorder.export_chrome_trace(str(tmp_path / "t.json"))

    assert not hooks
    found = marks(traced(tmp_path / "t.json"))
    assert len(found) == 3
    assert len(set(found)) == 1


@pytest.mark.gpu
def test_kernels_of_a_replay_on_a_gpu_get_their_operators(tmp_path: Path) -> None:
    pytest.importorskip("msgspec")
    from rocsolid.api.trace import analyze_traces

    target = Target("device", "cuda")
    model = target.module(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)))
    captured = target.capture(model, annotate=tmp_path / "captures")
    for rows in (8, 16):  # the same kernels, perhaps, but not the same shapes
        captured(target.randn(rows, 64))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorder:
        for rows in (8, 16):
            captured(target.randn(rows, 64))
        torch.cuda.synchronize()
    recorder.export_chrome_trace(str(tmp_path / "replay.json"))
    file = analyze_traces([tmp_path / "replay.json"], capture=tmp_path / "captures").report.files[0]

    assert file.capture
    assert file.capture.kernels_with_operator == file.capture.kernels > 4
    shapes = {row.shape for row in file.devices[0].operators if row.in_graph and row.name == "aten::addmm"}
    assert {"256, 8x64, 64x256", "256, 16x64, 64x256"} <= shapes
    assert {"Linear", "ReLU"} <= {row.name for row in file.modules}
