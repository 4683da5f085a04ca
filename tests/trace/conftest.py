"""Traces are read by Python alone, or with the scanner in C; the answers are the same."""

import ctypes
import importlib

import pytest


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The scanner, built for this run."""
    pytest.importorskip("numpy")
    from rocsolid.trace.c_scanner_build import build, load

    file = tmp_path_factory.mktemp("native") / "scan.so"
    assert build(file), "the tests need a C compiler"
    found = load(file)
    assert found
    return found


@pytest.fixture(params=["Python", "C"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to read, one after the other."""
    library = request.getfixturevalue("native") if request.param == "C" else None
    # By name, since `rocsolid.trace` is the function when it is asked for as an attribute.
    monkeypatch.setattr(importlib.import_module("rocsolid.trace.kineto"), "library", lambda: library)
    return str(request.param)
