"""Every dry-run rule has a finding where it should, and none where it should not."""

from dataclasses import replace

import pytest

from rocsolid.model.dryrun import (
    AutotuneSearch,
    CaptureBlocker,
    DryRun,
    DryRunGraph,
    DryRunKernel,
    ExternCall,
    Fp8Use,
    KernelConfig,
    Resources,
)
from rocsolid.model.finding import Severity
from rocsolid.rules.dryrun_rules import check_dry_run, run_checks
from rocsolid.rules.engine import find_rule


def used(**changes: float) -> Resources:
    given: dict[str, float] = {"registers": 32, "lds_limit_bytes": 65536, "occupancy": 8, "block": 1024} | changes
    return Resources(**given)  # type: ignore[arg-type]


def kernel(*resources: Resources | str, origin: str = "user", **fields: tuple[str, ...] | bool) -> DryRun:
    """A run with one kernel; a string instead of resources is its compile error."""
    configs = tuple(
        KernelConfig(warps=4, error=r) if isinstance(r, str) else KernelConfig(warps=4, resources=r) for r in resources
    )
    kernel = DryRunKernel(name="k", origin=origin, source="", locations=("m.py:3",), configs=configs, **fields)  # type: ignore[arg-type]
    return DryRun(target="gfx942", product="AMD Instinct MI300X", kernels=(kernel,))


def graph(target: str = "gfx942", **fields: object) -> DryRun:
    graph = DryRunGraph(name="graph 0", kind="inference", **fields)  # type: ignore[arg-type]
    return DryRun(target=target, product="", graphs=(graph,))


def searching(choices: int, compiled: int = 0, seconds: float = 0.0) -> DryRun:
    search = AutotuneSearch(op="mm", shapes="", choices=choices, compiled=compiled, seconds=seconds)
    return DryRun(target="gfx942", product="", searches=(search,))


CONV = ExternCall(name="convolution", library="MIOpen", count=1, capture="Not safe", evidence="miopen-not-graph-safe")
# By code: runs with a finding and its severity, then similar runs without one.
CASES: dict[str, tuple[list[tuple[DryRun, Severity]], list[DryRun]]] = {
    "DRY001": (
        [(kernel("boom"), Severity.CRITICAL), (kernel("boom", used()), Severity.WARNING)],
        [kernel(used())],
    ),
    "DRY002": (
        [
            (kernel(used(lds_bytes=65537)), Severity.CRITICAL),
            (kernel(used(lds_bytes=65537), used()), Severity.WARNING),
        ],
        [kernel(used(lds_bytes=65536)), kernel("boom")],
    ),
    "DRY003": (
        [
            (kernel(used(spills=1)), Severity.WARNING),
            (kernel(used(spills=40), used(), origin="inductor"), Severity.INFO),
        ],
        [kernel(used(scalar_spills=3))],
    ),
    "DRY004": ([(kernel(used(occupancy=1)), Severity.INFO)], [kernel(used(occupancy=1), used()), kernel("boom")]),
    "DRY005": (
        [
            (kernel(used(lanes_used=0.5, block=128)), Severity.WARNING),
            (kernel(used(lanes_used=0.5, block=128), origin="inductor"), Severity.INFO),
        ],
        [kernel(used(lanes_used=0.5, block=128), used()), kernel("boom")],
    ),
    "DRY006": (
        [
            (graph(fp8=(Fp8Use(format="float8_e4m3fn", location="m.py:1"),)), Severity.WARNING),
            (graph("gfx950", fp8=(Fp8Use(format="float8_e5m2fnuz"),)), Severity.WARNING),
            (graph("gfx90a", fp8=(Fp8Use(format="float8_e5m2"),)), Severity.WARNING),
            (kernel(used(), fp8=("float8_e4m3fn",)), Severity.WARNING),
        ],
        [graph("gfx950", fp8=(Fp8Use(format="float8_e4m3fn"),)), kernel(used(), fp8=("float8_e4m3fnuz",))],
    ),
    "DRY007": ([(kernel("boom", foreign=("inline assembly x",)), Severity.CRITICAL)], [kernel("boom")]),
    "DRY008": (
        [(graph(externs=(CONV,)), Severity.WARNING)],
        [graph(externs=(ExternCall(name="sort", library="ATen", count=1),))],
    ),
    "DRY009": ([(graph(nodes=20_001), Severity.CRITICAL)], [graph(nodes=20_000), graph("sm_90", nodes=30_000)]),
    "DRY010": (
        [(searching(60), Severity.WARNING), (searching(30, compiled=2, seconds=5.0), Severity.WARNING)],
        [searching(59), searching(100, compiled=10, seconds=1.0)],
    ),
    "DRY011": (
        [(graph(capture_blockers=(CaptureBlocker(reason="x is on the CPU", location="m.py:2"),)), Severity.WARNING)],
        [graph()],
    ),
}
CASES |= {
    "DRY012": (
        [
            (kernel(used(wavefront=512)), Severity.CRITICAL),
            (kernel(used(wavefront=512), used()), Severity.WARNING),
        ],
        [kernel(used(wavefront=256)), kernel("boom")],
    ),
    "DRY013": (
        [(kernel(used(), descriptors=True), Severity.INFO)],
        [kernel(used()), replace(kernel(used(), descriptors=True), target="sm_90")],
    ),
}
CHECKS = dict(run_checks())


def test_every_rule_has_cases() -> None:
    assert set(CASES) == set(CHECKS)


@pytest.mark.parametrize("code", CASES)
def test_a_rule_finds_its_hazard(code: str) -> None:
    for run, severity in CASES[code][0]:
        (finding,) = CHECKS[code](run)
        assert (finding.code, finding.severity) == (code, severity)
        for text in (finding.message, finding.why, finding.fix, finding.check):
            assert text
            assert "{" not in text


@pytest.mark.parametrize("code", CASES)
def test_a_rule_has_no_false_finding(code: str) -> None:
    for run in CASES[code][1]:
        assert list(CHECKS[code](run)) == [], run


def test_the_fix_for_a_wrong_fp8_type_names_the_right_one() -> None:
    fixes = [list(CHECKS["DRY006"](run))[0].fix for run, _ in CASES["DRY006"][0]]  # noqa: RUF015 - one each

    assert [fix.partition(",")[0] for fix in fixes] == [
        "Convert on gfx942: x.to(torch.float8_e4m3fnuz)",
        "Convert on gfx950: x.to(torch.float8_e5m2)",
        "Compute in bfloat16 on gfx90a: x.to(torch.bfloat16)",
        "Convert on gfx942: x.to(torch.float8_e4m3fnuz)",
    ]
    assert "a scale that uses torch.finfo(torch.float8_e4m3fnuz).max" in fixes[0]  # 448 would become NaN


def test_findings_are_sorted_by_severity_and_have_pages() -> None:
    findings = check_dry_run(kernel("boom", foreign=("inline assembly x",)))

    assert [f.code for f in findings] == ["DRY007", "DRY001"]
    assert findings[1].cause == findings[0].key
    assert all(find_rule(f.code) for f in findings)
