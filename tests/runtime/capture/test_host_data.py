"""Tensors that a call makes from Python numbers are kept on the device; numbers read from a CPU argument are never kept."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

import rocsolid as rs
from rocsolid.model.capture_report import Reason

pytestmark = pytest.mark.torch


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """Makes a tensor from a list that can be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = [1.0, 2.0, 3.0]

    def forward(self, x: Any) -> Any:
        return x * torch.tensor(self.scale, device=x.device)


def written_in_place(x: Any) -> Any:
    counts = torch.tensor([1.0, 2.0, 3.0], device=x.device)
    counts += x[0]
    return counts


def masked(x: Any) -> Any:
    return torch.where(x > 0, torch.tensor(0.0, device=x.device, dtype=x.dtype), torch.tensor([-1.0], device=x.device))


def assigned(x: Any) -> Any:
    y = x.clone()
    y[:, [0, 2]] = 5.0
    y[x.long() % 4, [0, 1, 2]] = 7
    y[y > 6] = 8.0
    return y


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device),
    "as_tensor": lambda x: x + torch.as_tensor([[1, 2, 3]], dtype=x.dtype, device=x.device),
    "asarray": lambda x: x + torch.asarray([1.0, 2.0, 3.0], device=x.device),
    "new_tensor": lambda x: x + x.new_tensor([1, 2, 3]),
    "two constants": lambda x: x * torch.tensor(2.0, device=x.device) + torch.tensor([1.0], device=x.device),
    "to": lambda x: x + torch.tensor([1.0, 2.0, 3.0]).to(x.device),
    "to with dtype": lambda x: x + torch.tensor([1, 2, 3]).to(device=x.device, dtype=torch.float64),
    "list index": lambda x: x[:, [-1, 0]],
    "list of rows": lambda x: x[[1, 0, 1]],
    "assigned": assigned,
    "masked": masked,
    "written in place": written_in_place,
    "by the shape": lambda x: x / torch.tensor(x.shape, device=x.device).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_constants_made_in_the_call_are_captured(name: str, target: Any) -> None:
    function = PROGRAMS[name]
    fast = target.capture(function)
    for seed in range(4):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).to(target.device)
        torch.testing.assert_close(fast(x), function(x))

    assert fast.report().replays == 3, fast.report()


def test_another_source_of_the_numbers_makes_another_graph(target: Any) -> None:
    model = Scaled()
    fast = target.capture(model)
    x = torch.randn(4, 3, device=target.device)
    for scale in ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]):
        model.scale = scale
        for _ in range(3):
            torch.testing.assert_close(fast(x), x * torch.tensor(scale, device=target.device))
    model.scale[0] = 9.0
    torch.testing.assert_close(fast(x), x * torch.tensor([9.0, 5.0, 6.0], device=target.device))


def test_numbers_that_differ_in_every_run_are_refused_with_the_line() -> None:
    def function(x: Any) -> Any:
        return x + torch.tensor([time.perf_counter(), 1.0, 2.0])

    fast = rs.capture(function, backend="record")
    for _ in range(3):
        fast(torch.ones(3))

    (refusal,) = fast.report().refusals
    assert refusal.reason is Reason.HOST_COPY
    assert "`torch.tensor([time.perf_counter(), 1.0, 2.0])` copies other values" in refusal.message
    assert fast.report().replays == 0


def test_numbers_read_from_a_cpu_argument_are_not_kept(target: Any) -> None:
    def function(x: Any, numbers: Any) -> Any:
        kept = torch.zeros(3)
        kept += numbers
        return x + kept.to(x.device) + torch.tensor(numbers.tolist(), device=x.device)

    fast = target.capture(function)
    x = torch.ones(3, device=target.device)
    for value in range(4):
        numbers = torch.full((3,), float(value))
        torch.testing.assert_close(fast(x, numbers), function(x, numbers))


def test_a_cpu_constant_that_is_written_to_is_not_kept() -> None:
    from rocsolid.runtime.capture.host_data import ConstantRecorder

    writes: list[Callable[[Any], Any]] = [
        lambda tensor: tensor.add_(1),
        lambda tensor: tensor.__setitem__(0, 5.0),
        lambda tensor: tensor[:1].add_(1),
        lambda tensor: tensor.numpy().fill(3),
        lambda tensor: torch._foreach_add_([tensor], 1),
    ]
    recorder = ConstantRecorder(torch.device("meta"))
    with recorder:
        for write in writes:
            tensor = torch.tensor([1.0, 2.0])
            write(tensor)
            tensor.to("meta")
        assert not recorder.constants
        torch.tensor([1.0, 2.0]).to("meta")

    assert len(recorder.constants) == 1


def test_compiled_functions_are_recognised_in_a_run() -> None:
    """With the mode of the constants, they would be compiled again during the capture."""
    from rocsolid.runtime.capture.reachable_state import record_executed_code, runs_compiled_code

    function, x = PROGRAMS["tensor"], torch.ones(4, 3)
    compiled = torch.compile(function, backend="eager")
    compiled(x)
    for called, expected in ((function, False), (compiled, True), (lambda x: compiled(x) + 1, True)):
        executed = record_executed_code(partial(called, x))
        assert executed is not None
        assert runs_compiled_code(executed) is expected


def read_as_list(x: Any, n: Any) -> Any:
    return x + torch.tensor(n.tolist(), device=x.device)


HOST_READS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "item": (lambda x, n: x * n[0].item(), "n[0].item()"),
    "slice": (lambda x, n: x[: int(n[0])] * 2, "int(n[0])"),
    "branch": (lambda x, n: x + 1 if n[0] > 2 else x - 1, "n[0] > 2"),
    "computed": (lambda x, n: x * float((n * 2).sum()), "n * 2"),
    "returned": (lambda x, n: (x * 2, n + 1), "n + 1"),
    "list": (read_as_list, "n.tolist()"),
    "array": (lambda x, n: x * n.numpy().sum(), "n.numpy()"),
}
COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "to": lambda x, n: x + n.to(x.device),
    "view": lambda x, n: x + n[:1].view(1, 1).to(x.device, torch.float64),
    "copied": lambda x, n: torch.empty_like(x[: n.shape[0]]).copy_(n),
    "shape": lambda x, n: x.new_zeros(n.shape) + torch.zeros_like(n).numel(),
}


@pytest.mark.parametrize("name", HOST_READS)
def test_an_operation_that_reads_a_cpu_argument_is_found(name: str) -> None:
    from rocsolid.runtime.capture.host_data import find_host_read

    function, expression = HOST_READS[name]
    x, n = torch.ones(4, device="meta"), torch.tensor([2, 3, 4, 5])
    refusal = find_host_read(lambda: function(x, n), {"x": x, "n": n}, x.device)

    assert refusal is not None
    assert expression in refusal.message
    assert "reads `n` on the CPU" in refusal.message


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_a_cpu_argument_to_the_device_is_no_read(name: str) -> None:
    from rocsolid.runtime.capture.host_data import find_host_read

    x, n = torch.ones(4, device="meta"), torch.tensor([2, 3, 4, 5])
    assert find_host_read(lambda: COPIES[name](x, n), {"x": x, "n": n}, x.device) is None


def test_a_call_that_cannot_be_checked_is_refused() -> None:
    from rocsolid.runtime.capture.host_data import find_host_read

    def fails() -> None:
        msg = "no modes here"
        raise RuntimeError(msg)

    refusal = find_host_read(fails, {"n": torch.ones(2)}, torch.device("meta"))
    assert refusal is not None
    assert "whether the call reads `n` on the CPU cannot be checked (RuntimeError: no modes here)" in refusal.message


@pytest.mark.gpu
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", HOST_READS)
def test_a_replay_never_uses_old_numbers_of_a_cpu_argument(name: str, *, backward: bool) -> None:
    function, _ = HOST_READS[name]
    captured = rs.capture(function, backward=backward)
    for value in (2, 2, 2, 3, 2, 4, 4, 4):
        x, n = torch.arange(4.0, device="cuda"), torch.tensor([value] * 4)
        torch.testing.assert_close(captured(x, n), function(x, n))

    assert captured.report().replays == 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", COPIES)
def test_a_copied_cpu_argument_is_captured(name: str) -> None:
    captured = rs.capture(COPIES[name])
    for value in (2, 2, 3, 4):
        x, n = torch.arange(4.0, device="cuda"), torch.tensor([value] * 4)
        torch.testing.assert_close(captured(x, n), COPIES[name](x, n))
