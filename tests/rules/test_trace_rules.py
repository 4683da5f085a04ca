"""Every trace rule reports exactly the traces that it should."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rocsolid.model.finding import Finding, Severity
from rocsolid.model.trace import (
    Category,
    CategoryTime,
    CollectiveTime,
    CopyRow,
    CpuOperatorRow,
    CpuTrace,
    DeviceTrace,
    Doubt,
    DoubtKind,
    Gap,
    GraphCaptures,
    HostRegion,
    IdleCause,
    IdleTime,
    KernelRow,
    LaunchStats,
    OperatorRow,
    RankRow,
    Ranks,
    TraceFile,
    WorkOrder,
)
from rocsolid.rules import trace_rules
from rocsolid.rules.engine import all_rules
from rocsolid.rules.trace_rules import check_traces

MS = 1_000_000


def device(**fields: Any) -> DeviceTrace:
    """A device traced for 100 ms, half of it busy, without findings."""
    given: dict[str, Any] = {
        "device": "0", "kernel_count": 10, "kernel_time_ns": 50 * MS, "span_ns": 100 * MS, "busy_ns": 50 * MS,
        "idle_ns": 50 * MS, "copy_count": 0, "copy_bytes": 0, "graph_launches": 0, "graph_kernel_count": 0,
        "graph_kernel_time_ns": 0, "skipped_events": 0,
    }  # fmt: skip
    return DeviceTrace(**{**given, **fields})


def file(*devices: DeviceTrace, **fields: Any) -> TraceFile:
    return TraceFile(
        **{"file": "t.json", "producer": "kineto", "events": 9, "skipped_events": 0, "devices": devices, **fields}
    )


def idle(cause: IdleCause, ms: float) -> TraceFile:
    gap = Gap(
        start_ns=0,
        duration_ns=1,
        cause=cause,
        previous_work="a",
        next_work="b",
        launch_call="c",
        operator="o",
        host_activity="hipMemcpy",
    )
    times = (IdleTime(cause=cause, gap_count=3, time_ns=int(ms * MS)),)
    return file(device(idle=times, gaps=(gap,)))


def cpu_operators(calls: int, microseconds: int) -> TraceFile:
    """Calls of one short operator, and one long one of 20 ms."""
    rows = (
        CpuOperatorRow(name="aten::mm", calls=1, own_ns=20 * MS, total_ns=20 * MS),
        CpuOperatorRow(
            name="aten::add", calls=calls, own_ns=calls * microseconds * 1000, total_ns=calls * microseconds * 1000
        ),
    )
    busy_ns = sum(row.own_ns for row in rows)
    return file(cpu=CpuTrace(span_ns=2 * busy_ns, busy_ns=busy_ns, thread_count=1, operators=rows))


def copies(direction: str, count: int, size: int, memory: str = "pinned") -> TraceFile:
    row = CopyRow(direction=direction, memory=memory, count=count, bytes=size, time_ns=MS)
    return file(device(copies=(row,)))


def short(trace: TraceFile) -> TraceFile:
    """The same in a trace of ten seconds."""
    return replace(trace, devices=tuple(replace(d, span_ns=10_000 * MS) for d in trace.devices))


def slow(ms: int, roofline: float | None) -> TraceFile:
    row = OperatorRow(
        name="aten::mm", shape="512x64, 64x64", count=2, calls=2, device_ns=ms * MS, host_ns=0, roofline=roofline
    )
    return file(device(operators=(row,)))


def kernels(name: str, category: Category, ms: float, busy_ms: int = 50) -> TraceFile:
    row = KernelRow(
        name=name, category=category, count=4, total_ns=int(ms * MS), mean_ns=1.0, p50_ns=1, p99_ns=1,
        graph_count=0, launch_config="", operator="",
    )  # fmt: skip
    times = (CategoryTime(category=category, count=4, time_ns=int(ms * MS)),)
    other = CategoryTime(category=Category.OTHER, count=1, time_ns=int((busy_ms - ms) * MS))
    return file(device(kernels=(row,), categories=(*times, other), busy_ns=busy_ms * MS, idle_ns=(100 - busy_ms) * MS))


def steps(*ms: int) -> TraceFile:
    return file(
        steps=tuple(
            HostRegion(name=f"ProfilerStep#{n}", count=1, total_ns=t * MS, p50_ns=t, shortest_ns=t, longest_ns=t)
            for n, t in enumerate(ms)
        )
    )


def communication(exposed_ms: int) -> TraceFile:
    return file(device(collectives=CollectiveTime(count=5, time_ns=40 * MS, exposed_ns=exposed_ms * MS)))


def projections(
    times: int, *products: tuple[str, int], name: str = "aten::addmm", roofline: float | None = None, calls: int = 0
) -> TraceFile:
    """Products of 1 ms each with these shapes, one after the other; a normalisation follows each group."""
    norm = OperatorRow(name="aten::layer_norm", count=times, device_ns=times, host_ns=0)
    shapes = [shape for shape, number in products for _ in range(number)]
    rows = [
        OperatorRow(
            name=name, count=times * number, calls=calls and times * number, device_ns=times * number * MS, host_ns=0,
            category=Category.GEMM, shape=shape, element_type="bf16", roofline=roofline,
        )
        for shape, number in products
    ]  # fmt: skip
    operator = [*([row.shape for row in rows].index(shape) + 1 for shape in shapes), 0] * times
    time_ns = tuple(MS if index else 1 for index in operator)
    order = WorkOrder(operator=tuple(operator), time_ns=time_ns)
    return file(device(operators=(norm, *rows), order=order))


CASES: dict[str, tuple[list[TraceFile], list[TraceFile]]] = {
    "TRC001": ([idle(IdleCause.LATE_LAUNCH, 30), idle(IdleCause.LAUNCH_IN_PROGRESS, 10)], [idle(IdleCause.LATE_LAUNCH, 9), idle(IdleCause.QUEUED, 40)]),
    "TRC002": ([idle(IdleCause.SYNC, 5), idle(IdleCause.BLOCKING_COPY, 2)], [idle(IdleCause.SYNC, 1), idle(IdleCause.LATE_LAUNCH, 30)]),
    "TRC003": (
        [copies("HtoD", 100, 100 * 512), copies("DtoH", 32, 32)],
        [short(copies("HtoD", 100, 100 * 512)), copies("DtoD", 100, 100), copies("HtoD", 31, 31), copies("HtoD", 100, 100 << 20)],
    ),
    "TRC004": (
        [kernels("Cijk_a", Category.GEMM, 80, busy_ms=95)],
        [kernels("Cijk_a", Category.GEMM, 80, busy_ms=85), kernels("k", Category.OTHER, 90, busy_ms=95)],
    ),
    "TRC005": ([idle(IdleCause.DATA_LOADER, 6)], [idle(IdleCause.DATA_LOADER, 4)]),
    "TRC006": ([communication(12), communication(2)], [communication(1)]),
    "TRC007": ([copies("HtoD", 3, 2_000_000, "pageable")], [copies("HtoD", 3, 2_000_000), copies("HtoD", 3, 9, "pageable")]),
    "TRC008": (
        [file(damage=("cut off",)), file(skipped_events=2), file(device(launches=LaunchStats(unlinked_count=5)))],
        [file(), file(device(launches=LaunchStats(unlinked_count=1))), file(device(launches=LaunchStats(unlinked_count=9)), producer="rocprofv3")],
    ),
    "TRC009": ([idle(IdleCause.BETWEEN_GRAPH_NODES, 8)], [idle(IdleCause.BETWEEN_GRAPH_NODES, 1)]),
    "TRC010": ([steps(10, 11, 30)], [steps(10, 11, 12), steps(10, 30)]),
    "TRC011": (
        [kernels("void at::native::vectorized_elementwise_kernel<4>", Category.ELEMENTWISE, 20)],
        [kernels("triton_poi_fused_0", Category.ELEMENTWISE, 40), kernels("at::native::x", Category.ELEMENTWISE, 5)],
    ),
    "TRC016": (
        [cpu_operators(2000, 5)],
        [cpu_operators(2000, 50), cpu_operators(500, 5), cpu_operators(2000, 1)],  # long, few, a small share
    ),
    "TRC014": ([slow(10, 0.1)], [slow(10, 0.7), slow(2, 0.1), slow(10, None)]),
    "TRC015": (
        [projections(10, ("128, 8x64, 64x128", 3)), projections(1, ("8x64, 64x64", 2), ("8x64, 64x128", 1), name="aten::mm", calls=3)],
        [
            projections(10, ("128, 8x64, 64x128", 1)),
            projections(10, ("128, 8x64, 64x128", 1), ("64, 8x128, 128x64", 1)),  # one after the other: other sizes
            projections(1, ("128, 8x64, 64x128", 3), roofline=0.9),
            projections(10, ("128, 1025x64, 64x128", 3)),
            projections(10, ("128, 64, 64x128", 3)),
            projections(10, ("8x64, 64x8", 2), ("64x8, 8x64", 1), name="aten::mm"),  # gradients
        ],
    ),
    "TRC013": ([file(doubts=(Doubt(kind=kind, text="lost"),)) for kind in DoubtKind], [file()]),
}  # fmt: skip


def found(trace: TraceFile, code: str) -> list[Finding]:
    return [f for f in check_traces([trace]) if f.code == code]


def test_every_trace_rule_has_test_cases() -> None:
    codes = {f.rule.code for f in all_rules() if f.rule.code.startswith("TRC")}

    assert codes == {*CASES, "TRC012"}


@pytest.mark.parametrize("code", CASES)
def test_rule_reports_its_hazard_and_nothing_else(code: str) -> None:
    for trace in CASES[code][0]:
        (finding,) = found(trace, code)
        assert finding.location == "t.json"
        for text in (finding.message, finding.why, finding.fix, finding.check):
            assert text
            assert "{" not in text
    for trace in CASES[code][1]:
        assert found(trace, code) == []


def test_advice_is_ranked_by_recoverable_time() -> None:
    late = idle(IdleCause.LATE_LAUNCH, 30).devices[0]
    both = replace(late, collectives=CollectiveTime(count=5, time_ns=60 * MS, exposed_ns=50 * MS))
    findings = check_traces([file(both)])

    assert [f.code for f in findings] == ["TRC006", "TRC001"]
    assert [f.facts["recoverable_ms"] for f in findings] == [(0.0, 50.0), (30.0, 30.0)]
    assert all(f.facts["assumption"] and "Recoverable: " in f.fix for f in findings)


def test_time_inside_a_graph_launch_is_not_blamed_on_the_code_between_replays() -> None:
    times = IdleTime(
        cause=IdleCause.LATE_LAUNCH, gap_count=9, time_ns=30 * MS, in_call_ns=25 * MS, in_graph_launch_ns=25 * MS
    )
    (finding,) = found(file(device(idle=(times,), graph_kernel_time_ns=45 * MS)), "TRC001")

    assert finding.fix.startswith("25.00 of 30.00 ms pass inside the launch of a graph")
    assert finding.facts["recoverable_ms"] == (5.0, 30.0)


def test_one_long_opening_gap_is_not_promised() -> None:
    times = IdleTime(cause=IdleCause.LATE_LAUNCH, gap_count=9, time_ns=40 * MS, longest_ns=39 * MS)
    (finding,) = found(file(device(idle=(times,))), "TRC001")

    assert finding.severity is Severity.INFO
    assert "One gap of 39.00 ms is most of the waiting and is not counted." in finding.why
    assert finding.facts["recoverable_ms"] == (1.0, 1.0)


def test_a_trace_with_captures_is_not_advised_to_capture() -> None:
    trace = replace(idle(IdleCause.LATE_LAUNCH, 30), captures=GraphCaptures(count=1, recorded_launches=9, launches=10))
    (finding,) = found(trace, "TRC001")

    assert finding.fix.startswith("Profile calls that replay the graph")


def test_a_sync_is_named_by_its_operator() -> None:
    trace = idle(IdleCause.SYNC, 5)
    gap = replace(trace.devices[0].gaps[0], host_activity="cudaStreamSynchronize", host_operator="aten::is_nonzero")
    (finding,) = found(file(replace(trace.devices[0], gaps=(gap,))), "TRC002")

    assert finding.fix.startswith("Move aten::is_nonzero (cudaStreamSynchronize) out of the step")


def test_findings_about_a_doubtful_trace_are_notes_that_name_the_doubt() -> None:
    doubt = Doubt(kind=DoubtKind.LOST_KERNELS, text="kernels are lost")
    trace = replace(idle(IdleCause.LATE_LAUNCH, 30), doubts=(doubt,))
    (finding,) = found(trace, "TRC001")

    assert finding.severity is Severity.INFO
    assert finding.why.endswith("Uncertain: kernels are lost (TRC013).")
    assert finding.cause == "TRC013:the trace"


def test_replayed_kernels_are_not_advised_to_be_captured() -> None:
    trace = idle(IdleCause.LATE_LAUNCH, 30)
    replayed = replace(trace.devices[0], graph_kernel_time_ns=45 * MS)
    (before,) = found(trace, "TRC001")
    (after,) = found(replace(trace, devices=(replayed,)), "TRC001")

    assert before.fix.startswith("Capture the call")
    assert after.fix.startswith("Most kernels already run in graph replays")


def test_slowest_rank_is_reported() -> None:
    def ranks(*ms: int) -> Ranks:
        return Ranks(
            rows=tuple(
                RankRow(
                    rank=n,
                    file=f"r{n}.json",
                    device="0",
                    span_ns=100 * MS,
                    compute_ns=t * MS,
                    communication_ns=MS,
                    exposed_ns=MS,
                    idle_ns=0,
                )
                for n, t in enumerate(ms)
            )
        )

    (finding,) = check_traces([], ranks(80, 81, 92))
    assert (finding.code, finding.subject, finding.location) == ("TRC012", "rank 2", "r2.json")
    assert check_traces([], ranks(80, 81, 82)) == []
    assert check_traces([], ranks(80, 99)) == []


def test_crashing_check_becomes_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> Iterator[Finding]:
        msg = "boom"
        raise RuntimeError(msg)

    rule = all_rules()[-1].rule
    monkeypatch.setattr(trace_rules, "_checks", lambda _name: ((rule, crash),))

    assert {f.code for f in check_traces([file(device())])} == {"INT001"}


def test_merged_projections_save_all_but_the_longest() -> None:
    (finding,) = found(projections(10, ("128, 8x64, 64x128", 3)), "TRC015")
    assert finding.facts["recoverable_ms"] == (0.0, 20.0)

    (split,) = found(projections(10, ("128, 8x64, 64x128", 4)), "TRC015")
    pairs = projections(10, ("128, 8x64, 64x128", 4))
    rows = pairs.devices[0].operators
    two_kernels = replace(pairs.devices[0], operators=(rows[0], replace(rows[1], calls=20)))
    (joined,) = found(file(two_kernels), "TRC015")
    assert (split.facts["products"], joined.facts["products"]) == (4, 2)  # two kernels per product
    assert joined.facts["recoverable_ms"] == (0.0, 20.0)
