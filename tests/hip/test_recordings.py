"""Real traces of MI300X chips against what we say of HIP without one: the table, the stand-in, and the reading of captures.

What the traces say is stored beside the tests, so that it is held against our code everywhere; where the traces are here too, the
store is held against them.
"""

from typing import Any

import pytest
from tests.hip.recordings import CAPTURE, CHIPS, REPLAYS, read, stored
from tests.trace.data import TRUTH, real

from rocsolid.catalog.capture_rules import CAPTURE_RULES
from rocsolid.catalog.chips import chip
from rocsolid.model.capture_rule import CaptureMode, CaptureRule, Runtime
from rocsolid.model.platform import Platform
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.torchapi.pretend.fake_device_info import device_properties

# Launches that torch, Triton and hipBLASLt make by other names than the table has.
SPELLINGS = {"hipLaunchKernel": "hipModuleLaunchKernel", "hipExtModuleLaunchKernel": "hipModuleLaunchKernel"}
HIP = [runtime for runtime in Runtime if runtime.is_hip]


@pytest.mark.parametrize("name", CHIPS)
def test_the_store_says_what_the_trace_says(name: str) -> None:
    assert stored()[name] == read(name)


def rows(call: str) -> list[CaptureRule]:
    """What the table has on a call of the capturing thread."""
    name = SPELLINGS.get(call, call)
    return [rule for rule in CAPTURE_RULES if rule.call == name and not rule.other_thread]


def always_fails(rule: CaptureRule) -> bool:
    """In the mode of `torch.cuda.graph`, on both releases that were asked; the trace's lies between them."""
    return all(rule.behavior(runtime, CaptureMode.GLOBAL).fails for runtime in HIP)


def test_nothing_that_the_table_refuses_was_called_in_a_real_capture() -> None:
    """A whole decode step of vLLM was captured on an MI300X, with ROCm 7.0: what it called is what the table lets pass."""
    seen = stored()[CAPTURE]
    known = [call for call in seen["inside"] if rows(call)]
    refused = [call for call in known if all(map(always_fails, rows(call)))]

    assert sorted(known) == [
        "hipExtModuleLaunchKernel",
        "hipLaunchKernel",
        "hipModuleLaunchKernel",
        "hipPointerGetAttributes",
    ]
    assert refused == []


def test_what_the_table_refuses_was_kept_outside() -> None:
    """The warm-up waits and frees before the capture begins, and none of it inside."""
    seen = stored()[CAPTURE]
    refused = {call for call in seen["outside"] if rows(call) and all(map(always_fails, rows(call)))}

    assert refused == {"hipDeviceSynchronize", "hipEventSynchronize", "hipFree"}
    assert not refused & seen["inside"].keys()


def test_as_many_kernels_are_replayed_on_the_chip_as_were_captured() -> None:
    """On the rig they are counted as packets; here a real chip ran them."""
    launched = sum(count for call, count in stored()[CAPTURE]["inside"].items() if "LaunchKernel" in call)

    assert launched == 421
    assert TRUTH[REPLAYS[0]]["devices"]["2"]["graph_kernel_count"] == launched
    assert [stored()[name]["replays"] for name in REPLAYS] == [1, 1]


def test_our_reading_of_the_capture_and_of_its_replay_agree() -> None:
    pytest.importorskip("msgspec")
    pytest.importorskip("numpy")
    from rocsolid.trace.analysis.analyze import analyze_trace
    from rocsolid.trace.read import read_trace

    files = [real(name) for name in (CAPTURE, *REPLAYS)]
    capture, *replays = (analyze_trace(file, read_trace(file)) for file in files)
    inside = sum(count for call, count in stored()[CAPTURE]["inside"].items() if "LaunchKernel" in call)

    assert capture.captures.recorded_launches == inside
    assert [device.graph_kernel_count for trace in replays for device in trace.devices] == [inside, 544]
    assert [device.graph_launches for trace in replays for device in trace.devices] == [1, 1]


@pytest.mark.parametrize("name", CHIPS)
def test_the_stand_in_says_what_the_real_chip_said(name: str) -> None:
    seen: dict[str, Any] = stored()[name]
    known = chip(CHIPS[name])
    said = device_properties(known)

    assert {
        "computeMajor": said.major,
        "computeMinor": said.minor,
        "warpSize": said.warp_size,
        "numSms": said.multi_processor_count,
        "maxThreadsPerBlock": said.max_threads_per_block,
        "sharedMemPerBlock": said.shared_memory_per_block,
    }.items() <= seen["chip"].items()
    # The same MI300X has half the registers in the eyes of HIP before 7.2.
    older = known.platform is Platform.ROCM and seen["hip"] < 70200000
    assert seen["chip"]["registers"] == (65536 if older else said.regs_per_multiprocessor)


def test_the_stand_in_names_hip_as_the_real_builds_did() -> None:
    numbers = {name: seen["hip"] for name, seen in stored().items() if seen["hip"]}
    for release in ("6.4.3", "7.0.2", "7.2.1"):
        major, minor, build = map(int, PretendedChip(chip=chip("gfx942"), release=release).hip.split("."))
        assert major * 10_000_000 + minor * 100_000 + build in numbers.values(), numbers
