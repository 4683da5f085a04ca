"""Each test has its own cache folder, so that artefacts of one test do not affect another or the user."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_settings_are_tried(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Compile no form twice, except in the tests of that."""
    if not request.module.__name__.endswith(("test_tried_settings", "test_graph_passes")):
        monkeypatch.setattr("rocsolid.api.optimize._tried_settings", lambda *_, **__: [])


@pytest.fixture(autouse=True)
def _own_artefacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
