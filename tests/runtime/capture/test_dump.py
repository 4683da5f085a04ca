"""Graphs written down for a reader, and a clear word where torch has kept nothing to write."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import clean_environ, run_python

import rocsolid as rs
from rocsolid.errors import CannotRunError

pytest.importorskip("torch")
import torch

from rocsolid.runtime.capture import device

pytestmark = pytest.mark.torch
ON_DEVICE = """
import sys, torch, rocsolid as rs
if sys.argv[1] == "kept": torch.cuda.CUDAGraph().enable_debug_mode()
with torch.no_grad():
    g = rs.capture(lambda x: x * 2 + 1)
    for _ in range(2): g(torch.ones(4, device="cuda"))
    g.debug_dump(sys.argv[2])
"""


def test_a_tape_is_written_one_operation_a_line(tmp_path: Path) -> None:
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
def test_what_torch_did_not_keep_is_said(keeps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's own graphs do: without its debug mode they warn and write nothing, also where an older file lies."""
    file = tmp_path / "graph"
    file.write_text("of yesterday")

    def debug_dump(path: str) -> None:
        if keeps:
            Path(path).write_text("digraph")

    monkeypatch.setattr(device, "replay_of", lambda _: lambda: None)
    graph = device.DeviceGraph(SimpleNamespace(debug_dump=debug_dump), device.Pool(), None, 0)
    if keeps:
        graph.dump(str(file))
        assert file.read_text() == "digraph"
    else:
        with pytest.raises(CannotRunError, match="enable_debug_mode"):
            graph.dump(str(file))


@pytest.mark.gpu
@pytest.mark.parametrize("kept", ["kept", "not"])
def test_a_graph_of_the_device_is_written_where_torch_keeps_it(kept: str, tmp_path: Path) -> None:
    ran = run_python("-c", ON_DEVICE, kept, str(tmp_path / "graph"), env=clean_environ())

    if kept == "kept":
        assert ran.code == 0, ran.err
        assert "digraph" in (tmp_path / "graph.0").read_text()
    else:
        assert "enable_debug_mode" in ran.err
