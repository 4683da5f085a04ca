"""A call that cannot be captured: the message, the fallback to eager, and that the next capture works."""

import ctypes
import gc
import inspect
import io
import os
import re
import time
from typing import Any

import pytest
from tests.support import ROOT

import rocsolid as rs
from rocsolid.errors import CaptureError

pytest.importorskip("torch")
import numpy as np
import torch

pytestmark = pytest.mark.torch


def reads_a_value(x: Any) -> Any:
    return x * x.sum().item()


def branches_on_a_value(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


def indexes_with_a_mask(x: Any) -> Any:
    return x[x > 0].sum()


def creates_a_tensor(x: Any) -> Any:
    return x + torch.tensor(np.arange(3.0), device=x.device)


def copies_to_the_host(x: Any) -> Any:
    return x * float(x.cpu().sum())


def catches_the_error(x: Any) -> Any:
    try:
        return x * x.max().item()
    except Exception:  # noqa: BLE001 - the point
        return x


CASES = [
    (reads_a_value, "host sync", "`x.sum().item()` |aten::_local_scalar_dense"),
    (branches_on_a_value, "host sync", "`x.sum() > 0` |aten::is_nonzero|aten::_local_scalar_dense"),
    (indexes_with_a_mask, "data-dependent shape|host sync", "aten::index|aten::nonzero"),
    (creates_a_tensor, "host copy|host sync", "torch.tensor|aten::"),
    (copies_to_the_host, "host sync", "cpu|aten::"),
    (catches_the_error, "host sync", "`x.max().item()` |aten::_local_scalar_dense"),
]


@pytest.mark.parametrize(("function", "reason", "operation"), CASES, ids=lambda case: getattr(case, "__name__", None))
def test_the_refusal_names_the_operation_and_the_line(target: Any, function: Any, reason: str, operation: str) -> None:
    g, x = target.capture(function, eager_modules=()), target.randn(3)
    collecting = gc.isenabled()
    for _ in range(2):
        assert torch.equal(g(x), function(x))

    (refusal,) = g.report().refusals
    assert refusal.reason.value in reason.split("|")
    assert any(name in refusal.message for name in operation.split("|")), refusal.message
    file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    assert refusal.location.startswith(f"{file}:"), refusal
    assert line < int(refusal.location.rpartition(":")[2]) <= line + 3
    assert gc.isenabled() is collecting
    assert g.report().captures == 0

    after = target.capture(lambda x: x + 1)
    after(x)
    assert torch.equal(after(x), x + 1)
    assert after.report().replays == 1


def test_a_refused_call_is_logged_once_and_not_retried(target: Any, caplog: pytest.LogCaptureFixture) -> None:
    g, x = target.capture(reads_a_value), target.randn(3)
    for _ in range(5):
        g(x)
    assert g.report().eager_calls == {"first call": 1, "host sync": 4}
    assert sum("not captured, runs in eager" in line for line in caplog.messages) == 1


def test_on_error_raise_raises_at_every_call(target: Any, caplog: pytest.LogCaptureFixture) -> None:
    g, x = target.capture(reads_a_value, on_error="raise"), target.randn(3)
    with pytest.raises(CaptureError, match=r"test_refusals\.py:\d+   return x \* x\.sum\(\)\.item\(\)") as raised:
        g(x)
    assert raised.value.__cause__ is not None
    with pytest.raises(CaptureError, match=re.escape(str(raised.value))):
        g(x)
    assert not [line for line in caplog.messages if "runs in eager" in line]


def test_an_exception_of_the_function_is_raised_unchanged(target: Any) -> None:
    def fails(x: Any) -> Any:
        if x.shape[0] == 3:
            msg = "three is too few"
            raise ValueError(msg)
        return x + 1

    g = target.capture(fails)
    for _ in range(2):
        with pytest.raises(ValueError, match="three is too few"):
            g(target.randn(3))
    g(target.randn(4))
    assert torch.equal(g(torch.ones(4, device=target.device)), torch.full((4,), 2.0, device=target.device))


def test_a_wrong_call_raises_like_the_function(target: Any) -> None:
    g = target.capture(lambda x, y: x + y)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        g(target.randn(3))


def test_setting_the_seed_inside_the_function_is_refused(target: Any) -> None:
    def seeded(x: Any) -> Any:
        torch.manual_seed(1)
        return x + torch.rand_like(x)

    g, x = target.capture(seeded), target.randn(3)
    for _ in range(2):
        assert torch.equal(g(x), seeded(x))
    assert g.report().replays == 0 or target.backend == "device"


def test_a_constant_made_from_an_input_is_found_before_the_first_replay(target: Any) -> None:
    """Read without torch, as a library with its own CPU-side cache might."""
    if target.backend != "record":
        pytest.skip("the host cannot read device memory by its address")

    def scaled(x: Any) -> Any:
        return {"fine": x + 1, "scaled": x * ctypes.c_float.from_address(x.data_ptr()).value}

    g, x = target.capture(scaled), target.randn(3)
    for _ in range(2):
        assert torch.equal(g(x)["scaled"], x * x[0])
        x.add_(1)
    (refusal,) = g.report().refusals
    assert refusal.reason.value == "wrong result"
    assert "result['scaled']: relative error" in refusal.message
    assert "result['fine']" not in refusal.message


def test_a_function_that_is_not_deterministic_in_eager_is_refused(target: Any) -> None:
    g, x = target.capture(lambda x: x * (time.perf_counter_ns() % 1000)), target.randn(3)
    g(x)
    g(x)
    (refusal,) = g.report().refusals
    assert "two eager runs on the same input differ" in refusal.message
    assert g.report().replays == 0


def test_a_graph_with_wrong_results_is_refused_by_result_name(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform whose replay is broken, simulated by changing one element of the result."""
    from rocsolid.runtime.capture import entry

    plain = entry.Entry.replay_on

    def corrupt(self: Any, tensors: Any, lengths: Any) -> Any:
        result = plain(self, tensors, lengths)
        result["bad"][0] += 1
        return result

    monkeypatch.setattr(entry.Entry, "replay_on", corrupt)
    g, x = target.capture(lambda x: {"good": x + 1, "bad": x * 2}), target.randn(3)
    for _ in range(2):
        assert torch.equal(g(x)["bad"], x * 2)

    (refusal,) = g.report().refusals
    assert refusal.reason.value == "wrong result"
    assert "result['bad']: relative error" in refusal.message
    assert "result['good']" not in refusal.message
    assert g.report().check_failures == 1
    assert g.report().replays == 0


def test_the_periodic_check_finds_a_graph_that_breaks_later(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import rocsolid as rs
    from rocsolid.runtime.capture import entry

    g, x = target.capture(lambda x: x * 2, verify=rs.every(3)), target.randn(3)
    for _ in range(8):
        assert torch.equal(g(x), x * 2)
        x.add_(1)
    assert g.report().checks == 2 + 2
    plain = entry.Entry.replay_on
    monkeypatch.setattr(entry.Entry, "replay_on", lambda *args: plain(*args) + 1)
    for _ in range(4):
        g(x)
        assert torch.equal(g(x), x * 2)
    assert g.report().check_failures == 1
    assert not g.report().graphs


def test_integer_inputs_are_checked_at_the_first_real_call(target: Any) -> None:
    table, ids = target.randn(10, 4), torch.tensor([1, 2], device=target.device)
    g = target.capture(lambda ids: table[ids])
    g(ids)
    assert torch.equal(g(ids + 1), table[ids + 1])
    assert g.report().checks == 3
    assert torch.equal(g(ids + 2), table[ids + 2])
    assert g.report().replays == 1


def test_nan_and_inf_are_equal_where_eager_has_them_too(target: Any) -> None:
    g, x = target.capture(lambda x: (x - 10).sqrt() + (x * 0).reciprocal()), target.randn(4)
    for _ in range(3):
        assert torch.allclose(g(x), (x - 10).sqrt() + (x * 0).reciprocal(), equal_nan=True)
    assert g.report().replays == 2


def test_an_uninitialised_result_can_be_ignored(target: Any) -> None:
    import rocsolid as rs

    g, x = (
        target.capture(lambda x: (x + 1, torch.empty_like(x)), verify=rs.every(2, ignore=["result[1]"])),
        target.randn(4),
    )
    for _ in range(5):
        assert torch.equal(g(x)[0], x + 1)
    assert not g.report().refusals
    assert g.report().replays == 2


def test_compiled_functions_are_warmed_up_and_compiles_during_a_capture_refused(target: Any) -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
    g, x = target.capture(lambda x: compiled(x) + 1), target.randn(3)
    for _ in range(3):
        assert torch.equal(g(x), x * 2 + 2)
    assert g.report().replays == 2

    def compiles_each_time(x: Any) -> Any:
        return torch.compile(eval("lambda y: y * 2 + 1"), backend="eager")(x)  # noqa: S307 - new code every time

    g = target.capture(compiles_each_time)
    for _ in range(2):
        assert torch.equal(g(x), x * 2 + 1)
    assert g.report().refusals[0].reason.value == "compile"


class EndsTheProcess(torch.nn.Module):  # type: ignore[misc]
    """Ends the process during a capture, as some libraries do at their first use."""

    def forward(self, x: Any) -> Any:
        if torch._C._len_torch_dispatch_stack():  # operators are being recorded
            os._exit(7)
        return x * 2


def test_a_child_process_captures_first_where_a_library_may_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.api import capture
    from rocsolid.catalog.capture_precautions import Precautions
    from rocsolid.runtime.capture.captured import Captured
    from rocsolid.runtime.capture.options import Options

    risky = Precautions(try_in_child=True, min_verify_rounds=2)
    monkeypatch.setattr(capture, "precautions_for", lambda _: risky)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    g, x = capture.capture(torch.nn.Linear(2, 2), backend="record", verify="off"), torch.ones(1, 2)
    g(x)
    g(x)
    assert g.report().replays == 1
    assert g.report().graphs[0].checks == 2, "checked even with verify='off' where replays are known to be wrong"

    assert not capture.capture(EndsTheProcess(), backend="record").rocsolid._precautions.try_in_child
    assert capture.capture(EndsTheProcess(), backend="auto").rocsolid._precautions.try_in_child
    g = Captured(EndsTheProcess(), Options(backend="record"), risky, capture._try_in_child)
    assert torch.equal(g(x), x * 2)
    (refusal,) = g.report().refusals
    assert refusal.reason.value == "child process"
    assert "capturing in a child process" in refusal.message


def test_collectives_in_the_process_are_warned_about_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from rocsolid.runtime.capture import captured

    monkeypatch.setattr(captured, "_has_collectives", lambda: True)
    for _ in range(2):
        captured._warn_about_collectives("The watchdog breaks captures. Use ROCm 7.2.1")
    assert caplog.messages == ["The watchdog breaks captures. Use ROCm 7.2.1"]


def _is_capturing() -> bool:
    """As libraries ask; a CPU build raises."""
    try:
        return bool(torch.cuda.is_current_stream_capturing())
    except RuntimeError:
        return False


@pytest.mark.parametrize(("options", "checks"), [({}, 0), ({"max_overhead": 1e6}, 3)])
def test_comparisons_take_at_most_a_thousandth_of_the_time(options: dict[str, float], checks: int) -> None:
    def slow_in_eager(x: Any) -> Any:
        time.sleep(0.02)
        return x * 2

    g, x = rs.capture(slow_in_eager, backend="record", verify=rs.every(1000, **options)), torch.randn(3)  # type: ignore[arg-type]
    g(x)
    before = g.report().checks
    for _ in range(3000):
        g(x)

    assert g.report().checks - before == checks  # 3000 replays take a fraction of a second, 1000 times 20 ms is 20 s


def test_a_function_that_branches_on_capture_is_compared_on_that_branch(target: Any) -> None:
    """As transformers does with masks: the same result, rounded differently."""
    seen = io.StringIO()  # not watched, as a list would be

    def rounds_differently(x: Any) -> Any:
        return x * 3 * 1.00005 if _is_capturing() else x * 3

    def records_branch(x: Any) -> Any:
        seen.write("capturing " if _is_capturing() else "eager ")
        return x * 3

    def computes_differently(x: Any) -> Any:
        return x * 4 if _is_capturing() else x * 3

    x = target.randn(64)
    g = target.capture(rounds_differently, verify=rs.every(2))
    for _ in range(6):
        assert torch.allclose(g(x), x * 3, rtol=1e-4)
    assert (g.report().captures, g.report().refusals) == (1, ())

    g = target.capture(computes_differently)
    assert torch.equal(g(x), x * 3)
    assert g.report().refusals[0].reason.value == "wrong result"

    target.capture(records_branch, warmups=2, verify="off")(x)
    assert seen.getvalue().split() == [
        "eager",
        "capturing",
        "capturing",
        "capturing",
        "capturing",
    ]  # the call itself, two warm-ups, the run that shows what is executed, the capture
    assert not _is_capturing()


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        ("HIP error: 907", "event queried on CPU", "an event recorded during the capture was queried"),
        ("hipErrorStreamCaptureImplicit", "default stream", "work ran on the default stream"),
        ("HIP error: capturing stream has unjoined work", "unjoined stream", "was not joined back"),
        (
            "CUDA error: dependency created on uncaptured work in another stream",
            "uncaptured event",
            "waited for an event from outside",
        ),
        ("CUDA error: the operation cannot be performed in the present state", "unjoined stream", "an earlier capture"),
    ],
)
def test_an_error_of_the_runtime_is_explained(text: str, reason: str, message: str) -> None:
    """The first error of the chain counts, and the message names the page with details."""
    from rocsolid.runtime.capture.backends.record import RecordBackend
    from rocsolid.runtime.capture.diagnosis import explain_failure

    last = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    last.__context__ = RuntimeError(text)
    refusal = explain_failure(last, RecordBackend(), lambda: None)

    assert refusal.reason.value == reason
    assert message in refusal.message
    assert text in refusal.message
    number = {"event queried on CPU": 907, "default stream": 906, "uncaptured event": 905}.get(
        reason, 904 if "joined" in text else 401
    )
    assert refusal.message.endswith(f"\nmore: rocsolid explain {number}")
