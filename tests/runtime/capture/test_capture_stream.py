"""Capture streams, workspaces and free memory of the device backend, with fakes in place of a GPU."""

import contextlib
from typing import Any

import pytest
from tests.runtime.capture.test_failed_capture_cleanup import Machine

pytest.importorskip("torch")
import torch

from rocsolid.runtime.capture.backends import device

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("on_capture_stream", [False, True])
def test_warm_up_runs_on_the_callers_stream_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, *, on_capture_stream: bool
) -> None:
    """On the caller's stream on CUDA; on the capture stream on ROCm, where libraries keep state per stream."""
    machine = Machine(monkeypatch, set())
    monkeypatch.setattr(device, "_unused_streams", {0: [_Ready(machine.stream)]})
    backend = device.DeviceBackend(
        torch.device("cuda", 0), shared_pool=False, warm_up_on_capture_stream=on_capture_stream
    )
    with backend.capture_scope():
        with backend.warm_up_scope():
            warmed_on = machine.current
        assert machine.current is machine.stream, "the capture runs on the capture stream"
        waited = list(machine.stream.waited)
    if not on_capture_stream:
        assert warmed_on is machine.caller
        assert waited == [machine.caller, machine.caller], "the capture comes after the warm-ups"
    else:
        assert warmed_on is machine.stream
        assert waited == [machine.caller]


class _Ready:
    unusable = False

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def allocate_workspaces(self) -> None:
        pass


def test_workspaces_are_allocated_in_a_separate_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    @contextlib.contextmanager
    def inside(_: object) -> Any:
        made.append("pool")
        yield

    _without_device(monkeypatch)
    monkeypatch.setattr(torch.cuda, "use_mem_pool", inside)
    stream = device.CaptureStream(0)
    monkeypatch.setattr(torch, "addmm", lambda *_: made.append("matmul"))
    for _ in range(2):
        stream.allocate_workspaces()
    assert made == ["pool", "matmul"] * 2, "every time: all workspaces may have been freed meanwhile"


def _without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "new_stream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "MemPool", object)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: torch.ones(8, 8))


def test_the_workspace_pool_is_never_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_device(monkeypatch)
    destroyed: list[bool] = []

    class Memory:
        def __del__(self) -> None:
            destroyed.append(True)

    monkeypatch.setattr(torch.cuda, "MemPool", Memory)
    device.CaptureStream(0)
    Memory()
    assert destroyed == [True], "only the second one"


@pytest.mark.parametrize(
    ("free", "cached", "emptied", "message"),
    [
        (64 << 30, 1 << 30, False, ""),
        (1 << 20, 1 << 30, True, ""),
        (1 << 20, 2 << 20, True, "not enough GPU memory: 3 MiB are free, the static inputs alone need 16 MiB"),
    ],
)
def test_cached_memory_is_freed_when_the_gpu_is_nearly_full(
    monkeypatch: pytest.MonkeyPatch, free: int, cached: int, message: str, *, emptied: bool
) -> None:
    memory = [free, cached]

    def empty() -> None:
        memory[:] = [sum(memory), 0]

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (memory[0], 80 << 30))
    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    backend = device.DeviceBackend(torch.device("cuda", 0), shared_pool=False)
    assert backend.missing_memory(16 << 20) == message
    assert (memory[1] == 0) is emptied
