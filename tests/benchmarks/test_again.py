"""A model set up again: which caches the later processes find, and the record."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from benchmarks import again

pytestmark = pytest.mark.torch


def test_second_process_has_all_caches_and_third_only_those_of_rocsolid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders: list[tuple[str, str]] = []

    def process(_name: str, _args: Any, variables: dict[str, str]) -> dict[str, Any]:
        folders.append((variables["XDG_CACHE_HOME"], variables["TORCHINDUCTOR_CACHE_DIR"]))
        return {"setup_s": (20.0, 4.0, 5.0)[len(folders) - 1], "chosen": "compiled + graph"}

    monkeypatch.setattr(again, "_in_process", process)
    monkeypatch.setattr(sys, "argv", ["again", "--models", "bert", "--out", str(tmp_path / "record.json")])
    again.main()

    (kept, torch_first), second, (kept_elsewhere, torch_elsewhere) = folders
    assert second == (kept, torch_first)
    assert kept_elsewhere == kept
    assert torch_elsewhere != torch_first
    assert "20.0 s, then  4.00 s (0.200), elsewhere  5.00 s (0.250)" in capsys.readouterr().out
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["models"]["bert"]["second"]["setup_s"] == 4.0
    assert record["schema"] == "rocsolid/evidence/1"
