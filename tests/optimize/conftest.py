"""What one test leaves for the next process is not for the next test, nor for the user of this machine."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_artefacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
