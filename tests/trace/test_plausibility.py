"""Each kind of damage, made from a real trace, gives the right finding, and weakens the advice built on it."""

import gzip
import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.trace.data import Event, real, real_folder

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

import rocsolid as rs
from rocsolid.errors import RocsolidError
from rocsolid.model.finding import Severity
from rocsolid.model.trace import DoubtKind, TraceReport

H200 = "h200_policy_inference_25ms_39hz.json"
VLLM = "mi300x_vllm_decode_full_hipgraph.json.gz"
QWEN = "h100_qwen1.5-0.5b.json.gz"
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def text_of(name: str) -> bytes:
    raw = real(name).read_bytes()
    return gzip.decompress(raw) if name.endswith(".gz") else raw


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_of(name), parse_float=Decimal)
    return found


def save(folder: Path, trace: dict[str, Any]) -> TraceReport:
    return analyze(folder, json.dumps(trace, default=float).encode())


def analyze(folder: Path, text: bytes) -> TraceReport:
    (folder / "t.json").write_bytes(text)
    return rs.trace(folder / "t.json")


def on_device(trace: dict[str, Any]) -> list[Event]:
    return [event for event in trace["traceEvents"] if event.get("cat") in DEVICE]


def doubts(report: TraceReport) -> dict[DoubtKind, str]:
    """All doubts, by kind."""
    found: dict[DoubtKind, str] = {}
    for doubt in report.files[0].doubts:
        found[doubt.kind] = f"{found.get(doubt.kind, '')} {doubt.text}".strip()
    return found


def drop(trace: dict[str, Any], lost: Callable[[Event], bool]) -> None:
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not lost(event)]


def test_a_real_trace_of_nvidia_has_no_doubts() -> None:
    for name in (H200, QWEN):
        assert not doubts(rs.trace(real(name))), name


def test_a_sync_that_outlasts_the_recorded_work_means_lost_kernels(tmp_path: Path) -> None:
    trace = load(H200)
    sync = max((e for e in trace["traceEvents"] if e.get("name") == "cudaStreamSynchronize"), key=lambda e: e["dur"])
    drop(trace, lambda e: e.get("cat") in DEVICE and 0 < e["ts"] - sync["ts"] < sync["dur"])
    report = save(tmp_path, trace)

    assert re.search(r"cudaStreamSynchronize waits \d\.\d\d ms longer than any", doubts(report)[DoubtKind.LOST_KERNELS])
    advice = [f for f in report.findings if f.code in ("TRC001", "TRC002", "TRC004")]
    assert advice
    assert all(f.severity is Severity.INFO and "Uncertain:" in f.why and f.cause for f in advice)


def test_replays_of_one_graph_with_different_kernels_mean_lost_kernels(tmp_path: Path) -> None:
    trace = load(H200)
    replay = [e["args"]["correlation"] for e in trace["traceEvents"] if e.get("name") == "cudaGraphLaunch"][5]
    seen = [0]

    def lost(event: Event) -> bool:
        seen[0] += event.get("cat") == "kernel" and event["args"]["correlation"] == replay
        return event.get("cat") == "kernel" and event["args"]["correlation"] == replay and bool(seen[0] % 3)

    drop(trace, lost)
    assert "109 and 327 kernels" in doubts(save(tmp_path, trace))[DoubtKind.LOST_KERNELS]


def test_graph_launches_without_kernels_name_the_rocm_version_that_fixes_them(tmp_path: Path) -> None:
    trace = load(VLLM)
    replay = next(e["args"]["correlation"] for e in trace["traceEvents"] if e.get("name") == "hipGraphLaunch")
    drop(trace, lambda e: e.get("cat") == "kernel" and e["args"]["correlation"] == replay)
    report = save(tmp_path, trace)

    assert "1 of 1 graph launches have no kernel" in doubts(report)[DoubtKind.LOST_KERNELS]
    assert "ROCm 7.2.2" in next(f for f in report.findings if f.code == "TRC013").message


def test_launches_without_kernels_and_kernels_without_launches(tmp_path: Path) -> None:
    trace = load(QWEN)
    launched = sorted({e["args"]["correlation"] for e in on_device(trace) if "External id" in e["args"]})
    lost_kernels, lost_calls = set(launched[100:194]), set(launched[400:430])
    drop(trace, lambda e: e.get("cat") in DEVICE and e["args"]["correlation"] in lost_kernels)
    drop(trace, lambda e: e.get("cat") == "cuda_runtime" and e["args"].get("correlation") in lost_calls)
    found = doubts(save(tmp_path, trace))

    assert re.match(r"\d+ of [\d,]+ kernel launches have no kernel", found[DoubtKind.LOST_KERNELS])
    assert "30 kernels and copies in the middle" in found[DoubtKind.LOST_CALLS]


def test_a_hole_in_the_file_is_more_than_one_lost_event(tmp_path: Path) -> None:
    text = text_of(QWEN)
    kernels = [m.start() for m in re.finditer(rb'"cat": "kernel"', text)]
    cut = analyze(tmp_path, text[: kernels[1000] + 30] + text[kernels[1094] + 50 :])
    whole = rs.trace(real(QWEN)).files[0].devices[0].kernel_count
    lost = whole - cut.files[0].devices[0].kernel_count

    assert lost >= 94
    about = re.search(r"about (\d+) kernels and copies are lost", doubts(cut)[DoubtKind.LOST_KERNELS])
    assert about
    assert 0.7 * lost < int(about[1]) < 1.5 * lost
    filled = analyze(tmp_path, text[: kernels[1000]] + bytes(kernels[1094] - kernels[1000]) + text[kernels[1094] :])
    assert re.search(r"about 4\d\d events are lost", filled.files[0].damage[0])


def test_duplicated_events_and_long_durations_overlap(tmp_path: Path) -> None:
    twice = load(H200)
    twice["traceEvents"] += on_device(twice)
    found = doubts(save(tmp_path, twice))
    assert "4,980 events are in the file twice" in found[DoubtKind.OVERLAP]
    long = load(H200)
    for event in on_device(long):
        event["dur"] *= 10
    assert "durations are too long" in doubts(save(tmp_path, long))[DoubtKind.OVERLAP]


def test_a_kernel_longer_than_the_trace(tmp_path: Path) -> None:
    trace = load(QWEN)
    on_device(trace)[-1]["dur"] = Decimal(10_000_000)
    assert "takes 10000.00 ms, longer than the rest" in doubts(save(tmp_path, trace))[DoubtKind.DURATIONS]


@pytest.mark.parametrize("shift", [-3000, 30_000])
def test_a_shifted_device_clock(tmp_path: Path, shift: int) -> None:
    trace = load(QWEN)
    for event in on_device(trace):
        event["ts"] += shift
    assert "the clocks of host and device differ" in doubts(save(tmp_path, trace))[DoubtKind.CLOCK_SHIFT]


@pytest.mark.parametrize(
    ("name", "gaps"), [(VLLM, "430 of 433"), ("mi300x_pi0_bsz1_cudagraph_rocprof_26ms.json", "2,878 of 2,927")]
)
def test_gaps_of_0_or_1_ns_mean_that_durations_contain_the_gaps(name: str, gaps: str) -> None:
    report = rs.trace(real(name))

    assert f"{gaps} gaps are at most 1 ns" in doubts(report)[DoubtKind.GAPS_IN_DURATIONS]
    nothing_to_win = next(f for f in report.findings if f.code == "TRC004")
    assert f"{gaps} gaps" in nothing_to_win.why


def test_a_clock_of_whole_microseconds_is_no_reason_for_doubt(tmp_path: Path) -> None:
    trace = load(VLLM)
    for event in on_device(trace):
        event["ts"], event["dur"] = Decimal(int(event["ts"])), Decimal(int(event["dur"]))
    assert DoubtKind.GAPS_IN_DURATIONS not in doubts(save(tmp_path, trace))


def test_a_file_without_host_events_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    from rocsolid.cli.app import run

    run(["trace", str(real("mi300x_pi0_bsz1_cudagraph_rocprof_26ms.json"))])
    printed = capsys.readouterr().out

    assert "no runtime calls in the file" in printed
    assert "0 with 0 kernels" not in printed


def test_begin_and_end_pairs_are_events(tmp_path: Path) -> None:
    trace = load(VLLM)
    pairs: list[Event] = []
    for event in on_device(trace):
        end = {"ph": "E", "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + event.pop("dur")}
        pairs += [{**event, "ph": "B"}, end]
    pairs.sort(key=lambda e: (e["ts"], e["ph"] != "E"))
    trace["traceEvents"] = pairs
    found, truth = save(tmp_path, trace).files[0].devices[0], rs.trace(real(VLLM)).files[0].devices[0]

    assert (found.kernel_count, found.copy_count) == (truth.kernel_count, truth.copy_count)
    assert (found.kernel_time_ns, found.busy_ns) == (truth.kernel_time_ns, truth.busy_ns)
    trace["traceEvents"] = pairs[1:-1]
    assert save(tmp_path, trace).files[0].skipped_events == 2


def test_a_second_json_document_is_reported(tmp_path: Path) -> None:
    text = text_of(H200)
    report = analyze(tmp_path, text + b"\n" + text)

    assert "a second JSON document, were not read" in report.files[0].damage[0]
    assert any(f.code == "TRC008" for f in report.findings)
    assert report.files[0].devices[0].kernel_count == 4845


def mutate(rng: random.Random, text: bytes) -> bytes:
    """One to three random changes of bytes, numbers, events or the end of a trace."""
    changed = bytearray(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed))
        kind = rng.randrange(7)
        if kind == 0:
            changed[at] = rng.randrange(256)
        elif kind == 1:
            del changed[at : at + rng.choice((1, 10, 1000, 100_000))]
        elif kind == 2:
            changed[at:at] = changed[at : at + rng.choice((1, 10, 1000, 100_000))]
        elif kind == 3:
            del changed[at:]
        elif kind == 4:
            changed[at : at + 100] = bytes(100)
        else:
            found = re.compile(rb'"(?:dur|ts|correlation|stream|device|bytes|cat|ph)": ("\w+"|[\d.]+)').search(
                changed, at
            )
            if found:
                new = rng.choice(
                    (b"0", b"-1", b"1e9", b'"x"', b"null", b"99999999999", b"[]", b"true", b'"B"', b"0.0005")
                )
                changed[found.start(1) : found.end(1)] = new
        if not changed:
            break
    return bytes(changed)


def contradictions(report: TraceReport) -> list[str]:
    """What cannot be true in the numbers of a report."""
    found = []
    for file in report.files:
        for device in file.devices:
            checks = {
                "idle": device.idle_ns == device.span_ns - device.busy_ns >= 0,
                "kernels": sum(row.total_ns for row in device.kernels) == device.kernel_time_ns,
                "counts": sum(row.count for row in device.kernels) == device.kernel_count,
                "causes": sum(row.time_ns for row in device.idle) == device.idle_ns,
                "graphs": device.graph_kernel_count <= device.kernel_count,
                "streams": device.kernel_time_ns <= device.busy_ns * max(device.stream_count, 1) * 1.02,
                "span": device.span_ns < 10**11,
            }
            found += [name for name, true in checks.items() if not true]
    return found


def check_mutations(folder: Path, count: int, seed: int) -> int:
    """Analyze mutated real traces; returns how many could be read."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    files = ("mi300x_sglang_decode_hipgraph.json.gz", VLLM, "mi300x_bert-small.json.gz", "h100_bert-small.json.gz")
    texts = [text_of(name) for name in files]
    read = 0
    for number in range(count):
        try:
            report = analyze(folder, mutate(rng, rng.choice(texts)))
        except RocsolidError:
            continue
        read += 1
        wrong = contradictions(report)
        doubted = [f for f in report.findings if f.code in ("TRC008", "TRC013")]
        assert not wrong or doubted, f"mutation {number} of seed {seed}: {wrong}"
        assert not any(f.code == "INT001" for f in report.findings)
    return read


def test_100_random_mutations_give_no_traceback_and_no_silent_contradiction(tmp_path: Path) -> None:
    if real_folder() is None:
        pytest.skip("the real traces are not available: set SAMPLE_TRACES")
    assert check_mutations(tmp_path, 100, seed=1) > 60
