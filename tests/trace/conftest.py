"""Fixtures to read traces in Python only and with the C scanner; the results are the same."""

import ctypes
import importlib

import pytest


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The C scanner, built for this test run."""
    pytest.importorskip("numpy")
    from rocsolid.trace.readers.c_scanner_build import build, load_library

    file = tmp_path_factory.mktemp("native") / "scan.so"
    assert build(file), "the tests need a C compiler"
    found = load_library(file)
    assert found
    return found


@pytest.fixture(params=["Python", "C"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test in Python only, and with the C scanner."""
    library = request.getfixturevalue("native") if request.param == "C" else None
    # By name, because the attribute `rocsolid.trace` is the function.
    monkeypatch.setattr(importlib.import_module("rocsolid.trace.readers.kineto"), "c_library", lambda: library)
    return str(request.param)
