"""Batched copies into static inputs: every size, dtype and alignment, from any thread, with torch as fallback."""

import re
import threading
from importlib import resources
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from rocsolid.torchapi.graphs import batched_copy

pytestmark = pytest.mark.torch
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64, torch.float64]


def tensors(device: str, count: int) -> list[Any]:
    """All dtypes; empty, single, odd, transposed, not aligned to 16 bytes, with gaps, and one large tensor."""
    made = []
    for number in range(count):
        size = [0, 1, 3, 17, 64, 1000, 4099][number % 7]
        whole = torch.randint(0, 2, (size + 1,), device=device).to(DTYPES[number % len(DTYPES)])
        made.append(whole[1:] if number % 3 == 0 else whole[:size])
    made.append(torch.randn(6, 5, device=device).t())
    made.append(torch.randn(9, 8, device=device)[:, 2:5])  # with gaps
    made.append(torch.randn(300, 1000, device=device))
    return made


def statics_for(given: list[Any]) -> list[Any]:
    return [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).zero_() for x in given]


@pytest.mark.parametrize("count", [0, 1, 40, 600])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_tensor_is_copied(device: str, count: int) -> None:
    given = tensors(device, count)
    statics = statics_for(given)
    copy = batched_copy.make_batched_copy(statics)
    for _ in range(2):
        copy(given)
        assert all(torch.equal(static, x) for static, x in zip(statics, given, strict=True))
        given = [x.clone() if x.dtype == torch.bool else x * 2 for x in given]


@pytest.mark.gpu
def test_small_tensors_take_one_kernel_launch() -> None:
    given = [torch.randn(n + 1, device="cuda") for n in range(100)]
    statics = statics_for(given)
    copy = batched_copy.make_batched_copy(statics)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as seen:
        copy(given)
        torch.cuda.synchronize()
    names = [event.name for event in seen.events() if "opy" in event.name]
    assert names == ["rocsolid_copy_256"]


@pytest.mark.gpu
def test_a_new_thread_copies_on_its_own_stream() -> None:
    given = [torch.randn(50, device="cuda") for _ in range(5)]
    statics = statics_for(given)
    copy = batched_copy.make_batched_copy(statics)
    stream = torch.cuda.Stream()

    def other() -> None:
        with torch.cuda.stream(stream):
            copy(given)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    stream.synchronize()
    assert all(torch.equal(static, x) for static, x in zip(statics, given, strict=True))


@pytest.mark.gpu
def test_torch_copies_where_the_launch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched_copy, "make_launch", lambda *_: lambda _stream: 201)
    given = tensors("cuda", 30)
    statics = statics_for(given)
    batched_copy.make_batched_copy(statics)(given)
    assert all(torch.equal(static, x) for static, x in zip(statics, given, strict=True))


def test_a_static_input_passed_as_itself_is_not_copied() -> None:
    given = [torch.randn(4), torch.randn(4)]
    statics = statics_for(given)
    batched_copy.make_batched_copy(statics)([statics[0], given[1]])
    assert torch.equal(statics[0], torch.zeros(4))
    assert torch.equal(statics[1], given[1])


def test_the_kernels_take_as_many_sources_as_python_passes() -> None:
    folder = resources.files("rocsolid.torchapi.graphs")
    code, made = (folder.joinpath(f"copy_many.{kind}").read_text() for kind in ("cu", "ptx"))
    for most in (batched_copy.FEW, batched_copy.MOST):
        assert f"Sources<{most}> sources" in code
        assert re.search(rf"\.entry rocsolid_copy_{most}\([^)]*\[{8 * most}\]\s*\)", made)
