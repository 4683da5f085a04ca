"""What is launched on a capture's own stream: nothing on CUDA but one product for a workspace (stand-ins for streams and libraries)."""

import contextlib
from typing import Any

import pytest
from tests.runtime.capture.test_recovery import Machine

pytest.importorskip("torch")
import torch

from rocsolid.runtime.capture import device, lanes
from rocsolid.torchapi import device_graphs

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("hip", [None, "7.2"])
def test_warming_up_where_it_does_no_harm(monkeypatch: pytest.MonkeyPatch, hip: str | None) -> None:
    """On CUDA the caller's stream; on ROCm the capture's, for which libraries keep state."""
    machine = Machine(monkeypatch, set())
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(lanes, "_free", {0: [_Ready(machine.stream)]})
    backend = device.DeviceBackend(torch.device("cuda", 0), shared=False)
    with backend.section():
        with backend.warming():
            warmed_on = machine.current
        assert machine.current is machine.stream, "and the capture on its own"
        waited = list(machine.stream.waited)
    if hip is None:
        assert warmed_on is machine.caller
        assert waited == [machine.caller, machine.caller], "the capture comes after the warm-ups"
    else:
        assert warmed_on is machine.stream
        assert waited == [machine.caller]


class _Ready:
    lost = False

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def make_ready(self) -> None:
        pass


def test_what_torch_fills_in_before_a_capture_goes_to_another_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, set())
    machine.current = machine.stream
    filled_on = []

    class Filling(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_dispatch__(cls, *_: Any, **__: Any) -> None:
            filled_on.append(machine.current)

    class Graph:
        def capture_begin(self, **_: Any) -> None:
            torch.Tensor._make_subclass(Filling, torch.zeros(1)).fill_(3)
            filled_on.append(machine.current)

    device_graphs.begin_capture(Graph(), (0, 1), machine.caller)
    assert filled_on == [machine.caller, machine.stream]
    filled_on.clear()
    device_graphs.begin_capture(Graph(), (0, 1))
    assert filled_on == [machine.stream, machine.stream]


class Libraries:
    """Keep a workspace for the stream, until somebody frees all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allocated, self.kept, self.launched = 0, False, 0
        monkeypatch.setattr(lanes, "new_stream", lambda _: None)
        monkeypatch.setattr(torch.cuda, "MemPool", object)
        monkeypatch.setattr(torch.cuda, "use_mem_pool", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "current_blas_handle", self.handle)
        monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: {"allocation.all.allocated": self.allocated})
        monkeypatch.setattr(torch, "zeros", lambda *_, **__: torch.ones(8, 8))
        monkeypatch.setattr(torch, "addmm", self.launch)
        monkeypatch.setattr(torch, "mm", self.launch)

    def handle(self) -> None:
        if not self.kept:
            self.allocated += 1
        self.kept = True

    def launch(self, *_: Any) -> None:
        self.launched += 1


def test_a_product_is_launched_when_the_workspace_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = Libraries(monkeypatch)
    libraries.kept = True  # of an earlier lane on this stream
    lane = lanes.Lane(0)
    for _ in range(5):
        lane.make_ready()
    assert libraries.launched == 1, "of five captures the first"
    libraries.kept = False
    for _ in range(5):
        lane.make_ready()
    assert libraries.launched == 2, "somebody had freed all workspaces"


def test_on_rocm_both_products_are_launched_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.2")
    libraries = Libraries(monkeypatch)
    lane = lanes.Lane(0)
    for _ in range(3):
        lane.make_ready()
    assert libraries.launched == 6


def test_memory_of_a_lane_outlives_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    Libraries(monkeypatch)
    destroyed: list[bool] = []

    class Memory:
        def __del__(self) -> None:
            destroyed.append(True)

    monkeypatch.setattr(torch.cuda, "MemPool", Memory)
    lanes.Lane(0)
    Memory()
    assert destroyed == [True], "the other one"
