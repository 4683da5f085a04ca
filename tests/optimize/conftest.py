"""Each test has its own cache folder, so that artefacts of one test do not affect another or the user."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_artefacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
