"""A capture that fails is explained, costs nothing but itself, and leaves the process able to capture the next."""

import array
import ctypes
import gc
import inspect
import itertools
import os
import re
from typing import Any

import pytest
from tests.support import ROOT

import rocsolid as rs
from rocsolid.errors import CaptureError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


def reads_a_value(x: Any) -> Any:
    return x * x.sum().item()


def branches_on_a_value(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


def picks_by_mask(x: Any) -> Any:
    return x[x > 0].sum()


def makes_from_host_data(x: Any) -> Any:
    return x + torch.tensor([1.0, 2.0, 3.0], device=x.device)


def copies_to_the_host(x: Any) -> Any:
    return x * float(x.cpu().sum())


def swallows(x: Any) -> Any:
    try:
        return x * x.max().item()
    except Exception:  # noqa: BLE001 - the point
        return x


CASES = [
    (reads_a_value, "host read", "aten::_local_scalar_dense"),
    (branches_on_a_value, "host read", "aten::is_nonzero|aten::_local_scalar_dense"),
    (picks_by_mask, "data-dependent shape|host read", "aten::index|aten::nonzero"),
    (makes_from_host_data, "host copy|host read", "torch.tensor|aten::"),
    (copies_to_the_host, "host read", "cpu|aten::"),
    (swallows, "host read", "aten::_local_scalar_dense"),
]


@pytest.mark.parametrize(("function", "reason", "operation"), CASES, ids=lambda case: getattr(case, "__name__", None))
def test_the_operation_and_the_line_are_named(place: Any, function: Any, reason: str, operation: str) -> None:
    g, x = place.capture(function), place.randn(3)
    collecting = gc.isenabled()
    for _ in range(2):
        assert torch.equal(g(x), function(x))

    (refusal,) = g.report().refusals
    assert refusal.reason.value in reason.split("|")
    assert any(name in refusal.detail for name in operation.split("|")), refusal.detail
    file, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    assert refusal.place.startswith(f"{file}:"), refusal
    assert line < int(refusal.place.rpartition(":")[2]) <= line + 3
    assert gc.isenabled() is collecting
    assert g.report().captures == 0

    after = place.capture(lambda x: x + 1)
    after(x)
    assert torch.equal(after(x), x + 1)
    assert after.report().replays == 1


def test_a_failed_key_is_not_tried_again(place: Any, caplog: pytest.LogCaptureFixture) -> None:
    g, x = place.capture(reads_a_value), place.randn(3)
    for _ in range(5):
        g(x)
    assert g.report().eager_calls == {"first call": 1, "host read": 4}
    assert sum("runs eagerly" in line for line in caplog.messages) == 1


def test_raising_instead_of_running_eagerly(place: Any, caplog: pytest.LogCaptureFixture) -> None:
    g, x = place.capture(reads_a_value, on_error="raise"), place.randn(3)
    with pytest.raises(CaptureError, match=r"at .*test_failures\.py:") as raised:
        g(x)
    assert raised.value.__cause__ is not None
    with pytest.raises(CaptureError, match=re.escape(str(raised.value))):
        g(x)  # whoever caught the first is not given eager's speed in silence
    assert not [line for line in caplog.messages if "runs eagerly" in line], "it does not"


def test_an_error_of_the_functions_own_is_its_own(place: Any) -> None:
    def fails(x: Any) -> Any:
        if x.shape[0] == 3:
            msg = "three is too few"
            raise ValueError(msg)
        return x + 1

    g = place.capture(fails)
    for _ in range(2):
        with pytest.raises(ValueError, match="three is too few"):
            g(place.randn(3))
    g(place.randn(4))
    assert torch.equal(g(torch.ones(4, device=place.device)), torch.full((4,), 2.0, device=place.device))


def test_a_wrong_call_fails_as_the_function_fails(place: Any) -> None:
    g = place.capture(lambda x, y: x + y)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        g(place.randn(3))


def test_setting_the_seed_inside_is_refused(place: Any) -> None:
    def seeded(x: Any) -> Any:
        torch.manual_seed(1)
        return x + torch.rand_like(x)

    g, x = place.capture(seeded), place.randn(3)
    for _ in range(2):
        assert torch.equal(g(x), seeded(x))
    assert g.report().replays == 0 or place.backend == "device"


def test_a_value_baked_in_is_caught_before_the_first_replay(place: Any) -> None:
    """Read behind torch's back, as a library with a cache of its own on the host might."""
    if place.backend != "record":
        pytest.skip("the host cannot read device memory by its address")

    def baked(x: Any) -> Any:
        return {"fine": x + 1, "baked": x * ctypes.c_float.from_address(x.data_ptr()).value}

    g, x = place.capture(baked), place.randn(3)
    for _ in range(2):
        assert torch.equal(g(x)["baked"], x * x[0])
        x.add_(1)
    (refusal,) = g.report().refusals
    assert refusal.reason.value == "wrong result"
    assert "result['baked'] differs from eager by" in refusal.detail
    assert "result['fine']" not in refusal.detail


def test_a_function_that_eager_does_not_repeat_is_refused(place: Any) -> None:
    numbers = itertools.count(1)
    g, x = place.capture(lambda x: x * next(numbers)), place.randn(3)
    g(x)
    g(x)
    (refusal,) = g.report().refusals
    assert "eager itself answers differently each time" in refusal.detail
    assert g.report().replays == 0


def test_a_graph_that_answers_wrongly_is_refused_and_says_where(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform that replays wrongly, played by a replay that leaves one element as it was."""
    from rocsolid.runtime.capture import entry

    plain = entry.Entry.replay_on

    def corrupt(self: Any, tensors: Any, lengths: Any) -> Any:
        result = plain(self, tensors, lengths)
        result["bad"][0] += 1
        return result

    monkeypatch.setattr(entry.Entry, "replay_on", corrupt)
    g, x = place.capture(lambda x: {"good": x + 1, "bad": x * 2}), place.randn(3)
    for _ in range(2):
        assert torch.equal(g(x)["bad"], x * 2)

    (refusal,) = g.report().refusals
    assert refusal.reason.value == "wrong result"
    assert "result['bad'] differs from eager by" in refusal.detail
    assert "result['good']" not in refusal.detail
    assert g.report().check_failures == 1
    assert g.report().replays == 0


def test_a_graph_that_goes_wrong_later_is_caught_on_cadence(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import rocsolid as rs
    from rocsolid.runtime.capture import entry

    g, x = place.capture(lambda x: x * 2, verify=rs.every(3)), place.randn(3)
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


def test_integers_are_checked_on_their_first_real_change(place: Any) -> None:
    table, ids = place.randn(10, 4), torch.tensor([1, 2], device=place.device)
    g = place.capture(lambda ids: table[ids])
    g(ids)
    assert torch.equal(g(ids + 1), table[ids + 1])
    assert g.report().checks == 3
    assert torch.equal(g(ids + 2), table[ids + 2])
    assert g.report().replays == 1


def test_numbers_that_are_none_agree_where_eager_has_none(place: Any) -> None:
    g, x = place.capture(lambda x: (x - 10).sqrt() + (x * 0).reciprocal()), place.randn(4)
    for _ in range(3):
        assert torch.allclose(g(x), (x - 10).sqrt() + (x * 0).reciprocal(), equal_nan=True)
    assert g.report().replays == 2


def test_a_result_left_uninitialised_can_be_left_out(place: Any) -> None:
    import rocsolid as rs

    g, x = (
        place.capture(lambda x: (x + 1, torch.empty_like(x)), verify=rs.every(2, ignore=["result[1]"])),
        place.randn(4),
    )
    for _ in range(5):
        assert torch.equal(g(x)[0], x + 1)
    assert not g.report().refusals
    assert g.report().replays == 2


def test_compiled_code_that_was_not_warmed_is_refused_or_warmed(place: Any) -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
    g, x = place.capture(lambda x: compiled(x) + 1), place.randn(3)
    for _ in range(3):
        assert torch.equal(g(x), x * 2 + 2)
    assert g.report().replays == 2

    def compiles_each_time(x: Any) -> Any:
        return torch.compile(eval("lambda y: y * 2 + 1"), backend="eager")(x)  # noqa: S307 - new code every time

    g = place.capture(compiles_each_time)
    for _ in range(2):
        assert torch.equal(g(x), x * 2 + 1)
    assert g.report().refusals[0].reason.value == "compile"


class EndsTheProcess(torch.nn.Module):  # type: ignore[misc]
    """Does what some libraries do when they are first used inside a capture."""

    def forward(self, x: Any) -> Any:
        if torch._C._len_torch_dispatch_stack():  # the tape is listening
            os._exit(7)
        return x * 2


def test_where_a_library_may_end_the_process_a_child_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocsolid.api import capture
    from rocsolid.runtime.capture import care
    from rocsolid.runtime.capture.captured import Captured
    from rocsolid.runtime.capture.choosing import backend_for
    from rocsolid.runtime.capture.options import Options

    monkeypatch.setattr(capture, "_ENDS_THE_PROCESS", ("any",))
    monkeypatch.setattr(capture, "problem", lambda _: _Strikes)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    g, x = capture.capture(torch.nn.Linear(2, 2), backend="record", verify="off"), torch.ones(1, 2)
    g(x)
    g(x)
    assert g.report().replays == 1
    assert g.report().graphs[0].checks == 2, "where replays are known to go wrong they are checked whatever was said"

    cares: list[care.Care] = []

    class Kept(care.Care):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            cares.append(self)

    monkeypatch.setattr(capture, "Care", Kept)
    for backend in ("record", "auto"):
        capture.capture(EndsTheProcess(), backend=backend)
    assert cares[0].trial is None, "a tape ends no process"
    g = Captured(EndsTheProcess(), Options(backend="record"), backend_for, cares[1])
    assert torch.equal(g(x), x * 2)
    (refusal,) = g.report().refusals
    assert refusal.reason.value == "trial"
    assert "capturing in a child process" in refusal.detail


class _Strikes:
    title, fix = "This platform is known to", "Leave it"

    @staticmethod
    def applies(_: object) -> bool:
        return True


def test_collectives_beside_a_capture_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from rocsolid.runtime.capture import care

    monkeypatch.setattr(care, "_has_collectives", lambda: True)
    for _ in range(2):
        care.Care(watchdog="The watchdog breaks captures. Use ROCm 7.2.1").warn_of_watchdog()
    assert caplog.messages == ["The watchdog breaks captures. Use ROCm 7.2.1"]


def _asked() -> bool:
    """As libraries ask; a build without a device raises."""
    try:
        return bool(torch.cuda.is_current_stream_capturing())
    except RuntimeError:
        return False


def test_a_function_that_goes_another_way_in_a_capture_is_compared_with_that_way(place: Any) -> None:
    """As transformers does with masks: the same answer, rounded otherwise."""
    heard = array.array("b")  # not watched, as a list would be

    def rounds_otherwise(x: Any) -> Any:
        return x * 3 * 1.00005 if _asked() else x * 3

    def hears(x: Any) -> Any:
        heard.append(_asked())
        return x * 3

    def does_otherwise(x: Any) -> Any:
        return x * 4 if _asked() else x * 3

    x = place.randn(64)
    g = place.capture(rounds_otherwise, verify=rs.every(2))
    for _ in range(6):
        assert torch.allclose(g(x), x * 3, rtol=1e-4)
    assert (g.report().captures, g.report().refusals) == (1, ())

    g = place.capture(does_otherwise)
    assert torch.equal(g(x), x * 3)
    assert g.report().refusals[0].reason.value == "wrong result"

    place.capture(hears, warmups=2, verify="off")(x)
    assert list(heard) == [0, 1, 1, 1]  # the call itself, two warm-ups, the capture
    assert not _asked()


@pytest.mark.parametrize(
    ("text", "reason", "says"),
    [
        ("HIP error: 907", "event", "an event that was recorded in the capture was queried"),
        ("hipErrorStreamCaptureImplicit", "legacy stream", "something ran on the default stream"),
        ("HIP error: capturing stream has unjoined work", "unjoined stream", "never came back"),
        ("CUDA error: dependency created on uncaptured work in another stream", "foreign event", "waited for work"),
        ("CUDA error: the operation cannot be performed in the present state", "unjoined stream", "an earlier capture"),
    ],
)
def test_a_raw_error_of_the_runtime_is_translated(text: str, reason: str, says: str) -> None:
    """The first error of the chain counts, and the page that tells more is named."""
    from rocsolid.runtime.capture.diagnosis import explained
    from rocsolid.runtime.capture.record import RecordBackend

    last = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    last.__context__ = RuntimeError(text)
    refusal = explained(last, RecordBackend(), lambda: None)

    assert refusal.reason.value == reason
    assert says in refusal.detail
    assert text in refusal.detail
    number = {"event": 907, "legacy stream": 906, "foreign event": 905}.get(reason, 904 if "joined" in text else 401)
    assert f"`rocsolid explain {number}` tells more" in refusal.detail
