"""What a device is asked for before a capture: memory, a stream, workspaces (stand-ins for all of them)."""

import contextlib
from typing import Any

import pytest
from tests.runtime.capture.test_recovery import Machine

pytest.importorskip("torch")
import torch

from rocsolid.runtime.capture import device, lanes

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


def test_the_workspace_is_made_in_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    @contextlib.contextmanager
    def inside(_: object) -> Any:
        made.append("its memory")
        yield

    _without_device(monkeypatch)
    monkeypatch.setattr(torch.cuda, "use_mem_pool", inside)
    lane = lanes.Lane(0)
    monkeypatch.setattr(torch, "addmm", lambda *_: made.append("a product"))
    for _ in range(2):
        lane.make_ready()
    assert made == ["its memory", "a product"] * 2, "each time: somebody may have freed all workspaces"


def _without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "new_stream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "MemPool", object)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: torch.ones(8, 8))


def test_memory_of_a_lane_outlives_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_device(monkeypatch)
    destroyed: list[bool] = []

    class Memory:
        def __del__(self) -> None:
            destroyed.append(True)

    monkeypatch.setattr(torch.cuda, "MemPool", Memory)
    lanes.Lane(0)
    Memory()
    assert destroyed == [True], "the other one"


@pytest.mark.parametrize(
    ("free", "cached", "emptied", "says"),
    [
        (64 << 30, 1 << 30, False, ""),
        (1 << 20, 1 << 30, True, ""),
        (1 << 20, 2 << 20, True, "the device has 3 MiB left and the call's tensors alone take 16 MiB"),
    ],
)
def test_cached_memory_is_given_back_when_the_device_is_nearly_full(
    monkeypatch: pytest.MonkeyPatch, free: int, cached: int, says: str, *, emptied: bool
) -> None:
    memory = [free, cached]

    def empty() -> None:
        memory[:] = [sum(memory), 0]

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (memory[0], 80 << 30))
    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    backend = device.DeviceBackend(torch.device("cuda", 0), shared=False)
    assert backend.room_for(16 << 20) == says
    assert (memory[1] == 0) is emptied
