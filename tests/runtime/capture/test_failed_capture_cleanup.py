"""After a capture that HIP cannot end, nothing runs on its stream or waits for it (with fake streams and a fake runtime).

That HIP keeps capturing, and that a stream that waits joins the capture, is tested with the real HIP runtime in tests/hip.
"""

import contextlib
import ctypes
from typing import Any

import pytest
from tests.support import clean_environ, run_python

pytest.importorskip("torch")
import torch

from rocsolid.runtime.capture.backends import device
from rocsolid.torchapi.graphs import device_graphs

pytestmark = pytest.mark.torch


class Stream:
    """Remembers which streams it waited for."""

    def __init__(self, number: int) -> None:
        self.cuda_stream = number
        self.waited: list[Stream] = []

    def wait_stream(self, other: "Stream") -> None:
        self.waited.append(other)


class Machine:
    """The caller's stream, a capture stream, a new one, and a runtime in which some of them capture."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capturing: set[int]) -> None:
        self.caller, self.stream, self.fresh = Stream(1), Stream(2), Stream(3)
        self.current = self.caller
        self.cleaned_up_on: list[Stream] = []

        def is_capturing(stream: ctypes.c_void_p, state: Any) -> int:
            state._obj.value = int(stream.value in capturing)
            return 0

        monkeypatch.setattr(device_graphs, "driver_function", lambda _: is_capturing)
        monkeypatch.setattr(device_graphs, "new_stream", lambda _: self.fresh)
        for name in ("_END_POOL", "_RELEASE_POOL"):
            monkeypatch.setattr(device_graphs, name, self)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: self.current)
        monkeypatch.setattr(torch.cuda, "set_stream", self.enter)
        monkeypatch.setattr(torch.cuda, "stream", self.entered)
        monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: self)
        monkeypatch.setattr(torch, "empty", lambda *_, **__: torch.zeros(1))

    def find(self) -> Any:
        return lambda *_: None

    def enter(self, stream: Stream) -> None:
        self.current = stream

    @contextlib.contextmanager
    def entered(self, stream: Stream) -> Any:
        previous, self.current = self.current, stream
        yield
        self.current = previous

    def capture_begin(self, **_: Any) -> None:
        self.cleaned_up_on.append(self.current)

    def capture_end(self) -> None:
        pass

    def reset(self) -> None:
        pass


class CannotEnd:
    """A graph with unjoined work."""

    def capture_end(self) -> None:
        msg = "HIP error: capturing stream has unjoined work"
        raise RuntimeError(msg)


@pytest.mark.parametrize("stuck", [True, False])
def test_a_stream_that_keeps_capturing_is_replaced(monkeypatch: pytest.MonkeyPatch, *, stuck: bool) -> None:
    machine = Machine(monkeypatch, {2} if stuck else set())
    machine.current = machine.stream

    device_graphs.clean_up_failed_capture(CannotEnd(), 0, None, ())

    wanted = machine.fresh if stuck else machine.stream
    assert machine.current is wanted
    assert machine.cleaned_up_on == [wanted]


@pytest.mark.parametrize("stuck", [True, False])
def test_a_stream_that_keeps_capturing_is_not_waited_for_or_reused(
    monkeypatch: pytest.MonkeyPatch, *, stuck: bool
) -> None:
    machine = Machine(monkeypatch, {2} if stuck else set())
    monkeypatch.setattr(device, "_unused_streams", {})

    class FakeCaptureStream:
        unusable = False
        stream = machine.stream

        def allocate_workspaces(self) -> None:
            pass

    capture_stream = FakeCaptureStream()
    monkeypatch.setattr(device, "CaptureStream", lambda _: capture_stream)
    backend = device.DeviceBackend(torch.device("cuda", 0), shared_pool=False)
    with backend.capture_scope():
        device_graphs.clean_up_failed_capture(CannotEnd(), 0, None, ())

    assert machine.caller.waited == [machine.fresh if stuck else machine.stream]
    assert capture_stream.unusable is stuck
    assert (backend._capture_stream is None) is stuck
    del backend
    assert len(device._unused_streams[0]) == (0 if stuck else 1)


PROGRAM = """
import torch, rocsolid as rs
with torch.no_grad():
    x = torch.ones(4, device="cuda")
    good = rs.capture(lambda x: x * 2)
    bad = rs.capture(lambda x: x * x.sum().item())
    for _ in range(2): good(x), bad(x)
    assert good.report().replays == 1 and bad.report().refusals
"""


@pytest.mark.gpu
def test_a_program_exits_normally_after_a_failed_capture() -> None:
    ran = run_python("-c", PROGRAM, env=clean_environ())
    assert ran.code == 0, ran.err
