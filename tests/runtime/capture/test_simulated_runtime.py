"""A simulated runtime captures or refuses a function as the capture-rule table says."""

import inspect
import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import CaptureError, UnknownNameError, UsageError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch
RUNTIMES = ("hip-6.4", "hip-7.2", "cuda")


def waits_for_the_device(x: Any) -> Any:
    y = x * 2
    torch.cuda.synchronize()
    return y


def waits_for_the_accelerator(x: Any) -> Any:
    torch.accelerator.synchronize()
    return x * 2


def waits_for_its_stream(x: Any) -> Any:
    torch.cuda.current_stream().synchronize()
    return x * 2


def waits_for_another_stream(x: Any) -> Any:
    torch.cuda.default_stream().synchronize()
    return x * 2


def queries_its_stream(x: Any) -> Any:
    return x * 2 if torch.cuda.current_stream().query() else x


def queries_an_event_of_its_own(x: Any) -> Any:
    event = torch.cuda.Event()
    event.record()
    event.query()
    return x * 2


def waits_for_an_event_of_its_own(x: Any) -> Any:
    torch.cuda.current_stream().record_event().synchronize()
    return x * 2


def times_itself(x: Any) -> Any:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    y = x * 2
    end.record()
    start.elapsed_time(end)
    return y


class QueriesAnOldEvent(torch.nn.Module):  # type: ignore[misc]
    """Keeps the event that its first call recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.event: Any = None

    def forward(self, x: Any) -> Any:
        if self.event is None:
            self.event = torch.cuda.Event()
            self.event.record()
        self.event.query()
        return x * 2


class WaitsForAnOldEvent(QueriesAnOldEvent):
    """Keeps the event that its first call recorded."""

    def forward(self, x: Any) -> Any:
        if self.event is None:
            self.event = torch.cuda.current_stream().record_event()
        self.event.synchronize()
        return x * 2


def queries_an_event_never_recorded(x: Any) -> Any:
    torch.cuda.Event().query()
    return x * 2


def forks(x: Any) -> Any:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        return x * 2


def forks_and_joins(x: Any) -> Any:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    torch.cuda.current_stream().wait_stream(side)
    return y + 1


def waits_for_an_outside_event(x: Any) -> Any:
    torch.cuda.current_stream().wait_event(torch.cuda.default_stream().record_event())
    return x * 2


def uses_an_outside_stream(x: Any) -> Any:
    with torch.cuda.stream(torch.cuda.Stream()):
        y = x * 2
    return y + 1


def catches_the_error(x: Any) -> Any:
    try:
        torch.cuda.synchronize()
    except Exception:  # noqa: BLE001 - the point
        return x
    return x * 2


# The function, then the reason on HIP 6.4, HIP 7.2 and CUDA; an empty one means that it is captured.
CASES: list[tuple[Any, tuple[str, str, str]]] = [
    (waits_for_the_device, ("host sync",) * 3),
    (waits_for_the_accelerator, ("host sync",) * 3),
    (waits_for_its_stream, ("host sync",) * 3),
    (waits_for_another_stream, ("host sync",) * 3),
    (queries_its_stream, ("host sync",) * 3),
    (queries_an_event_of_its_own, ("event queried on CPU",) * 3),
    (waits_for_an_event_of_its_own, ("event queried on CPU",) * 3),
    (times_itself, ("event queried on CPU",) * 3),
    (QueriesAnOldEvent(), ("", "event queried on CPU", "event queried on CPU")),
    (WaitsForAnOldEvent(), ("event queried on CPU",) * 3),
    (queries_an_event_never_recorded, ("", "", "")),
    (forks, ("unjoined stream",) * 3),
    (forks_and_joins, ("", "", "")),
    (waits_for_an_outside_event, ("", "", "uncaptured event")),
    (uses_an_outside_stream, ("wrong result",) * 3),  # the runtime accepts it silently, and verification finds it
    (catches_the_error, ("host sync",) * 3),
]


@pytest.mark.parametrize(("function", "reasons"), CASES, ids=lambda case: getattr(case, "__name__", None))
def test_each_runtime_captures_or_refuses_as_the_table_says(function: Any, reasons: tuple[str, ...]) -> None:
    for runtime, reason in zip(RUNTIMES, reasons, strict=True):
        captured = rs.capture(function, backend="record", simulate=runtime)
        for value in (1.0, 2.0, 3.0):
            expected = value * 2 + (function in (forks_and_joins, uses_an_outside_stream))
            assert captured(torch.full((2,), value)).tolist() == [expected] * 2
        report = captured.report()
        assert [refusal.reason.value for refusal in report.refusals] == ([reason] if reason else []), runtime
        assert report.replays == (0 if reason else 2), runtime


def test_the_refusal_names_the_call_the_error_the_line_and_the_fix() -> None:
    captured = rs.capture(QueriesAnOldEvent(), backend="record", simulate="hip-7.2")
    captured(torch.ones(2))
    (refusal,) = captured.report().refusals
    line = inspect.getsourcelines(QueriesAnOldEvent.forward)[1] + 4

    assert refusal.location == f"{__file__}:{line}"
    shown = refusal.location.removeprefix(f"{Path.cwd()}/")
    assert refusal.message == (
        "`self.event.query()` cannot be captured on HIP 7.2.4\n"
        f"  {shown}   self.event.query()\n"
        f"  {' ' * len(shown)}   ^^^^^^^^^^^^^^^^^^\n"
        "why: hipEventQuery of an event recorded before the capture fails with hipErrorStreamCaptureUnsupported (900)\n"
        "fix: record and query events outside the captured function; inside, order streams with wait_stream or wait_event"
    )


def test_on_error_raise() -> None:
    captured = rs.capture(forks, backend="record", simulate="cuda", on_error="raise")

    with pytest.raises(CaptureError, match=r"joined the capture with cudaStreamWaitEvent .*Unjoined \(904\)"):
        captured(torch.ones(2))


def test_a_synchronize_in_another_thread_breaks_the_capture() -> None:
    def wait() -> None:
        with suppress(Exception):  # the thread's own error
            torch.cuda.synchronize()

    def synchronizes_in_a_thread(x: Any) -> Any:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        return x * 2

    captured = rs.capture(synchronizes_in_a_thread, backend="record", simulate="hip-7.2")
    captured(torch.ones(2))

    (refusal,) = captured.report().refusals
    assert refusal.reason.value == "another thread"
    assert (
        "hipDeviceSynchronize from another thread fails with hipErrorStreamCaptureUnsupported (900)" in refusal.message
    )


def test_a_call_that_is_silently_left_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rocsolid"):
        rs.capture(waits_for_an_outside_event, backend="record", simulate="hip-6.4")(torch.ones(2))

    assert (
        "why: hipStreamWaitEvent for an event of a stream outside the capture succeeds, but is silently left out"
        in caplog.text
    )


@pytest.mark.parametrize(("release", "reasons"), [("2.10.0", ["runtime call"]), ("2.11.0+cpu", [])])
def test_pin_memory_is_refused_before_torch_2_11(
    monkeypatch: pytest.MonkeyPatch, release: str, reasons: list[str]
) -> None:
    captured = rs.capture(lambda x: x.pin_memory() * 2, backend="record", simulate="hip-7.2")
    monkeypatch.setattr(torch, "__version__", release)
    assert captured(torch.ones(2)).tolist() == [2, 2]

    assert [refusal.reason.value for refusal in captured.report().refusals] == reasons


def test_torch_is_restored_afterwards() -> None:
    names = ("Stream", "Event", "stream", "current_stream", "default_stream", "synchronize")
    before = [getattr(torch.cuda, name) for name in names]
    captured = rs.capture(forks_and_joins, backend="record", simulate="hip-7.2")
    captured(torch.ones(2))
    captured.warm([((torch.ones(3),), {})])

    assert [getattr(torch.cuda, name) for name in names] == before
    assert "pin_memory" not in vars(torch.Tensor)
    assert len(captured.report().graphs) == 2
    (buffer,) = captured.inputs(torch.ones(4))
    assert buffer.shape == (4,)


def test_without_simulate_torch_cuda_is_not_replaced() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    with pytest.raises((AssertionError, RuntimeError)):
        rs.capture(waits_for_the_device, backend="record")(torch.ones(2))


def test_simulate_as_a_decorator_of_a_method() -> None:
    class Model:
        @rs.capture(backend="record", simulate="cuda")
        def step(self, x: Any) -> Any:
            return waits_for_the_device(x)

    model: Any = Model()
    assert model.step(torch.ones(2)).tolist() == [2, 2]
    assert [refusal.reason.value for refusal in model.step.report().refusals] == ["host sync"]


def test_a_wrong_runtime_or_backend_raises_at_once() -> None:
    with pytest.raises(UnknownNameError, match=r"hip-7\.2"):
        rs.capture(forks, backend="record", simulate="hip-7")
    with pytest.raises(UsageError, match="simulate='cuda' requires backend=\"record\""):
        rs.capture(forks, simulate="cuda")
