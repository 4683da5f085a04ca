"""`debug_dump` writes graphs to files, and raises where torch kept nothing to write."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import clean_environ, run_python

import rocsolid as rs
from rocsolid.errors import CannotRunError

pytest.importorskip("torch")
import torch

from rocsolid.runtime.capture.backends import device
from rocsolid.torchapi.graphs import device_graphs

pytestmark = pytest.mark.torch
ON_DEVICE = """
import sys, torch, rocsolid as rs
with torch.no_grad():
    g = rs.capture(lambda x: x * 2 + 1, keep_graph=sys.argv[1] == "kept")
    for _ in range(2): g(torch.ones(4, device="cuda"))
    g.debug_dump(sys.argv[2])
"""


def test_a_recorded_graph_is_written_one_operator_per_line(tmp_path: Path) -> None:
    g = rs.capture(lambda x: x * 2 + 1, backend="record")
    for shape in ((4,), (5,)):
        for _ in range(2):
            g(torch.ones(shape))
    g.debug_dump(str(tmp_path / "graph"))

    assert sorted(file.name for file in tmp_path.iterdir()) == ["graph.0", "graph.1"]
    lines = (tmp_path / "graph.0").read_text().splitlines()
    assert [line.split()[0] for line in lines] == [str(number) for number in range(len(lines))]
    assert any("mul" in line for line in lines)
    assert any("add" in line for line in lines)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_gpu_graph_that_was_not_kept_raises(keeps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's graphs that were not kept only warn and write nothing, even where an older file exists."""
    file = tmp_path / "graph"
    file.write_text("of yesterday")

    def debug_dump(path: str) -> None:
        if keeps:
            Path(path).write_text("digraph")

    monkeypatch.setattr(device, "replay_function", lambda _: lambda: None)
    graph = device.DeviceGraph(SimpleNamespace(debug_dump=debug_dump), device.MemoryPool(), None, 0)
    if keeps:
        graph.dump(str(file))
        assert file.read_text() == "digraph"
    else:
        with pytest.raises(CannotRunError, match="keep_graph=True"):
            graph.dump(str(file))


def test_forward_and_backward_graphs_are_both_written(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    g = rs.capture(model, backend="record", backward=True)
    with torch.enable_grad():
        for _ in range(2):
            g(torch.ones(2, 4)).sum().backward()
    g.debug_dump(str(tmp_path / "graph"))

    assert sorted(file.name for file in tmp_path.iterdir()) == ["graph.0", "graph.0.backward"]


@pytest.mark.parametrize("torch_keeps", [True, False])
def test_a_graph_is_kept_by_argument_or_by_debug_mode(torch_keeps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before torch 2.8 graphs took no argument, and were kept in debug mode."""
    used: list[str] = []

    class Graph:
        def __init__(self, **options: bool) -> None:
            if options and not torch_keeps:
                raise TypeError
            used.extend(options)

        def enable_debug_mode(self) -> None:
            used.append("debug mode")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    device_graphs.new_graph(keep=False)
    assert used == []
    device_graphs.instantiate(device_graphs.new_graph(keep=True))
    assert used == (["keep_graph"] if torch_keeps else ["debug mode"])


@pytest.mark.gpu
@pytest.mark.parametrize("kept", ["kept", "not"])
def test_a_gpu_graph_is_written_when_it_was_kept(kept: str, tmp_path: Path) -> None:
    ran = run_python("-c", ON_DEVICE, kept, str(tmp_path / "graph"), env=clean_environ())

    if kept == "kept":
        assert ran.code == 0, ran.err
        assert "digraph" in (tmp_path / "graph.0").read_text()
    else:
        assert "keep_graph=True" in ran.err
