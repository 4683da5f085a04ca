"""Compares the capture-rule table, the pretended chip and the trace reader with real traces of MI300X chips.

What the traces contain is stored next to the tests, so these run everywhere. Where the traces are available too, the stored
values are compared with them.
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

# Launches of torch, Triton and hipBLASLt that have other names in the table.
SPELLINGS = {"hipLaunchKernel": "hipModuleLaunchKernel", "hipExtModuleLaunchKernel": "hipModuleLaunchKernel"}
HIP = [runtime for runtime in Runtime if runtime.is_hip]


@pytest.mark.parametrize("name", CHIPS)
def test_the_stored_values_are_those_of_the_trace(name: str) -> None:
    assert stored()[name] == read(name)


def rows(call: str) -> list[CaptureRule]:
    """The rows of the table for a call of the capturing thread."""
    name = SPELLINGS.get(call, call)
    return [rule for rule in CAPTURE_RULES if rule.call == name and not rule.other_thread]


def always_fails(rule: CaptureRule) -> bool:
    """Whether it fails in the mode of `torch.cuda.graph` on both tested releases; the trace's release is between them."""
    return all(rule.behavior(runtime, CaptureMode.GLOBAL).fails for runtime in HIP)


def test_a_real_capture_calls_nothing_that_the_table_refuses() -> None:
    """A decode step of vLLM was captured on an MI300X with ROCm 7.0."""
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


def test_calls_that_the_table_refuses_were_made_outside_the_capture() -> None:
    """The warm-up synchronizes and frees before the capture begins."""
    seen = stored()[CAPTURE]
    refused = {call for call in seen["outside"] if rows(call) and all(map(always_fails, rows(call)))}

    assert refused == {"hipDeviceSynchronize", "hipEventSynchronize", "hipFree"}
    assert not refused & seen["inside"].keys()


def test_a_real_chip_replays_as_many_kernels_as_were_captured() -> None:
    """In the HIP rig they are counted as packets; here a real chip ran them."""
    launched = sum(count for call, count in stored()[CAPTURE]["inside"].items() if "LaunchKernel" in call)

    assert launched == 421
    assert TRUTH[REPLAYS[0]]["devices"]["2"]["graph_kernel_count"] == launched
    assert [stored()[name]["replays"] for name in REPLAYS] == [1, 1]


def test_the_trace_reader_agrees_on_the_capture_and_its_replay() -> None:
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
def test_the_pretended_chip_has_the_figures_of_the_real_one(name: str) -> None:
    seen: dict[str, Any] = stored()[name]
    known = chip(CHIPS[name])
    pretended = device_properties(known)

    assert {
        "computeMajor": pretended.major,
        "computeMinor": pretended.minor,
        "warpSize": pretended.warp_size,
        "numSms": pretended.multi_processor_count,
        "maxThreadsPerBlock": pretended.max_threads_per_block,
        "sharedMemPerBlock": pretended.shared_memory_per_block,
    }.items() <= seen["chip"].items()
    # HIP before 7.2 reports half the registers for the same MI300X.
    older = known.platform is Platform.ROCM and seen["hip"] < 70200000
    assert seen["chip"]["registers"] == (65536 if older else pretended.regs_per_multiprocessor)


def test_the_pretended_hip_version_is_spelled_as_in_real_builds() -> None:
    numbers = {name: seen["hip"] for name, seen in stored().items() if seen["hip"]}
    for release in ("6.4.3", "7.0.2", "7.2.1"):
        major, minor, build = map(int, PretendedChip(chip=chip("gfx942"), release=release).hip.split("."))
        assert major * 10_000_000 + minor * 100_000 + build in numbers.values(), numbers
