"""Preloading the compiler saves time and changes nothing else."""

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
from rocsolid.torchapi.inductor.compiler_startup import lazily_imported, preload_compiler

pytestmark = pytest.mark.torch
PROGRAM = """
import json, sys, torch
from rocsolid.torchapi.inductor.compiler_startup import preload_compiler

preload_compiler()
compiler_imported = "torch._inductor.compile_fx" in sys.modules
networkx_imported = any(name.partition(".")[0] == "networkx" for name in sys.modules)
from torch._functorch._activation_checkpointing.graph_info_provider import GraphInfoProvider
provider = GraphInfoProvider(["a", "b"], [("a", "b")], ["a"], {"a": 1.0}, {"a": 1.0})
edges = list(provider.full_joint_nx_graph.edges)
import networkx
print(json.dumps([compiler_imported, networkx_imported, edges, type(networkx.DiGraph()).__name__]))
"""


def test_the_triton_hash_is_cached_for_later_calls() -> None:
    pytest.importorskip("triton")
    key = compiler_startup._TRITON_KEY.get()
    key.cache_clear()
    thread = preload_compiler()
    assert thread is not None
    assert thread.daemon, "the program must not wait for it at exit"
    thread.join()
    assert key.cache_info().currsize == 1
    started = time.thread_time()
    assert key()
    assert time.thread_time() - started < 0.01


def test_a_missing_triton_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        msg = "triton package is not available"
        raise RuntimeError(msg)

    monkeypatch.setattr(compiler_startup, "_TRITON_KEY", SimpleNamespace(find=lambda: missing))
    thread = preload_compiler()
    assert thread is not None
    thread.join()


def test_networkx_is_imported_only_when_torch_uses_it() -> None:
    pytest.importorskip("networkx")
    compiler_imported, networkx_imported, edges, class_name = json.loads(run_python("-c", PROGRAM).out)

    assert compiler_imported
    assert not networkx_imported
    assert edges == [["a", "b"]]
    assert class_name == "DiGraph"


def test_another_thread_gets_the_real_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_example.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    values = []

    def use() -> None:
        values.append(importlib.import_module("lazy_example").value)

    with lazily_imported("lazy_example"):
        placeholder: Any = importlib.import_module("lazy_example")
        annotation = placeholder.value
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert annotation is Any
    assert values == [1]
    assert placeholder.value == 1
    del sys.modules["lazy_example"]


def test_a_missing_module_raises_immediately() -> None:
    with lazily_imported("there_is_no_such_module"), pytest.raises(ModuleNotFoundError):
        __import__("there_is_no_such_module")
