"""Torch's compiler is started in less time, and is the same afterwards."""

import importlib
import json
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import run_python

pytest.importorskip("torch")
from rocsolid.torchapi.inductor import compiler_startup
from rocsolid.torchapi.inductor.compiler_startup import no_pool_ahead, put_off, start_compiler

pytestmark = pytest.mark.torch
IN_A_NEW_PROCESS = """
import json, sys, torch
from rocsolid.torchapi.inductor.compiler_startup import start_compiler

start_compiler()
started = "torch._inductor.compile_fx" in sys.modules
before = any(name.partition(".")[0] == "networkx" for name in sys.modules)
from torch._functorch._activation_checkpointing.graph_info_provider import GraphInfoProvider
made = GraphInfoProvider(["a", "b"], [("a", "b")], ["a"], {"a": 1.0}, {"a": 1.0})
edges = list(made.full_joint_nx_graph.edges)
import networkx
print(json.dumps([started, before, edges, type(networkx.DiGraph()).__name__]))
"""


def test_whoever_asks_later_finds_the_hash() -> None:
    pytest.importorskip("triton")
    key = compiler_startup._TRITON_KEY.reach()
    key.cache_clear()
    thread = start_compiler()
    assert thread is not None
    assert thread.daemon, "a program that ends does not wait for it"
    thread.join()
    assert key.cache_info().currsize == 1
    asked = time.thread_time()
    assert key()
    assert time.thread_time() - asked < 0.01


def test_no_triton_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        msg = "triton package is not available"
        raise RuntimeError(msg)

    monkeypatch.setattr(compiler_startup, "_TRITON_KEY", SimpleNamespace(reach=lambda: missing))
    thread = start_compiler()
    assert thread is not None
    thread.join()


def test_networkx_comes_when_torch_uses_it_and_not_before() -> None:
    pytest.importorskip("networkx")
    started, before, edges, kind = json.loads(run_python("-c", IN_A_NEW_PROCESS).out)

    assert started
    assert not before
    assert edges == [["a", "b"]]
    assert kind == "DiGraph"


def test_another_thread_gets_the_real_module_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wanted_by_two.py").write_text("there = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = []

    def ask() -> None:
        found.append(importlib.import_module("wanted_by_two").there)

    with put_off("wanted_by_two"):
        ours: Any = importlib.import_module("wanted_by_two")
        annotation = ours.there
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert annotation is Any
    assert found == [1]
    assert ours.there == 1
    del sys.modules["wanted_by_two"]


def test_what_is_not_installed_is_not_put_off() -> None:
    with put_off("there_is_no_such_module"), pytest.raises(ModuleNotFoundError):
        __import__("there_is_no_such_module")


def test_a_pool_is_not_started_ahead_of_need(monkeypatch: pytest.MonkeyPatch) -> None:
    asynchronous = pytest.importorskip("torch._inductor.async_compile")
    started: list[int] = []
    monkeypatch.setattr(asynchronous, "maybe_warm_pool", lambda: started.append(threading.get_ident()))
    with no_pool_ahead():
        asynchronous.maybe_warm_pool()
    assert not started
    asynchronous.maybe_warm_pool()
    assert started
