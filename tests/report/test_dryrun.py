"""Dry runs as text, JSON and HTML."""

from dataclasses import replace
from pathlib import Path

from tests.support import run_cli

from rocsolid.api.dryrun import with_findings
from rocsolid.model.dryrun import (
    AutotuneSearch,
    CaptureBlocker,
    DryRun,
    DryRunBreak,
    DryRunGraph,
    DryRunKernel,
    DryRunRecord,
    ExternCall,
    FailedTarget,
    KernelConfig,
    Resources,
    SkippedKernel,
)
from rocsolid.report.dryrun_page import dryrun_html
from rocsolid.report.dryrun_text import differences, dryrun_json, dryrun_text
from rocsolid.report.terminal import Terminal

USED = Resources(registers=44, lds_bytes=8192, lds_limit_bytes=65536, occupancy=8, block=4096, code_bytes=1456)
OVER = replace(USED, lds_bytes=65537, spills=3)
KERNEL = DryRunKernel(
    name="triton_red_0",
    origin="inductor",
    graph="graph 0",
    source="tl.load(x) # <script>",
    locations=("/home/me/m.py:7", "/home/me/m.py:9"),
    configs=(
        KernelConfig(values={"XBLOCK": 2}, warps=8, stages=1, grid=(16384,), resources=USED, asm="s_endpgm"),
        KernelConfig(values={"XBLOCK": 4}, warps=8, stages=1, resources=OVER),
        KernelConfig(values={"XBLOCK": 8}, warps=8, stages=1, error="RuntimeError: <no>"),
    ),
)
GRAPH = DryRunGraph(
    name="graph 0",
    kind="inference",
    kernels=("triton_red_0",),
    externs=(ExternCall(name="mm", library="rocBLAS", count=2, locations=("/home/me/m.py:8", "/home/me/m.py:9")),),
    nodes=3,
    capture_blockers=(CaptureBlocker(reason="y is on the CPU", location="/home/me/m.py:9"),),
)
RUN = DryRun(
    target="gfx942",
    product="AMD Instinct MI300X",
    torch="2.13.0",
    triton="3.7.1",
    graphs=(GRAPH,),
    kernels=(KERNEL,),
    breaks=(DryRunBreak(reason="print", location="/home/me/m.py:5"),),
    searches=(AutotuneSearch(op="mm", shapes="bf16[2, 2]", choices=37, compiled=2, seconds=3.2, failed=1),),
    notes=("the workload was loaded with real tensors, because its file reads their values",),
)
OTHER = replace(RUN, target="sm_90", product="NVIDIA H100", kernels=(replace(KERNEL, configs=KERNEL.configs[:1]),))
RECORD = with_findings(DryRunRecord(workload="m.py:build", train=True, runs=(RUN,), compared=OTHER))


def test_text_contains_everything() -> None:
    text = dryrun_text(RECORD, Terminal(width=140))

    for line in (
        "m.py:build · default · training",
        "gfx942 AMD Instinct MI300X · 1 kernel in 3 configurations",
        "  note: the workload was loaded with real tensors, because its file reads their values",
        "  graph 0 (inference): 1 launch, 2 library calls; cannot be captured",
        "    reason: y is on the CPU /home/me/m.py:9",
        "    2 × mm → rocBLAS  me/m.py:8 and 1 more line",
        "graph break at /home/me/m.py:5: print",
        "autotuning of mm bf16[2, 2]: 37 choices, 2 compiled in 3 s, 1 failed",
        "triton_red_0  me/m.py:7 and 1 more line",
        "  XBLOCK=4 warps=8 stages=1    44     0     0       3        0  65537 (too much)",
        "  XBLOCK=8 warps=8 stages=1: RuntimeError: <no>",
        "gfx942 compared with sm_90 (NVIDIA H100)",
        "triton_red_0 fails to compile for gfx942, but compiles for sm_90",
    ):
        assert line in text
    assert "grid 16384" not in text
    assert "XBLOCK=2 warps=8 stages=1: grid 16384" in dryrun_text(RECORD, Terminal(width=140), verbose=True)


def test_the_check_of_a_finding_is_the_users_own_command() -> None:
    assert {f.check.partition("   (")[0] for f in RECORD.findings} >= {
        "rocsolid dryrun m.py:build --train --target gfx942"
    }
    kernels = with_findings(DryRunRecord(workload="a.py b.py", mode="kernels", runs=(RUN,)))
    assert any(f.check.startswith("rocsolid dryrun --kernels a.py b.py --target gfx942") for f in kernels.findings)
    tuned = with_findings(DryRunRecord(workload="m.py:build", mode="max-autotune", runs=(RUN,)))
    assert any(f.check.startswith("rocsolid dryrun m.py:build --mode max-autotune --target") for f in tuned.findings)
    for record in (RECORD, kernels, tuned):
        assert not [f for f in record.findings if "FILE.py" in f.check]


def test_lists_the_differences_between_vendors() -> None:
    spilling = replace(KERNEL, configs=KERNEL.configs[1:2])
    run = replace(RUN, kernels=(spilling, replace(KERNEL, name="only_amd")))
    compared = replace(OTHER, kernels=(*OTHER.kernels, replace(KERNEL, name="only_nvidia")))

    assert list(differences(run, compared)) == [
        "triton_red_0 spills at least 3 registers on gfx942, none on sm_90",
        "only_amd exists only for gfx942",
        "only_nvidia exists only for sm_90",
        "triton_red_0 has different configurations: 1 on gfx942, 1 on sm_90, 0 in common",
    ]
    assert list(differences(RUN, RUN)) == []


def test_many_kernels_with_different_configurations_are_one_line() -> None:
    fine = replace(KERNEL, configs=KERNEL.configs[:1])
    four = [replace(fine, name=f"k{number}") for number in range(4)]
    wider = [replace(k, configs=(*k.configs, replace(k.configs[0], warps=4))) for k in four]

    found = list(differences(replace(RUN, kernels=tuple(four)), replace(OTHER, kernels=tuple(wider))))

    assert found == ["4 kernels have different configurations: in total 4 on gfx942, 8 on sm_90, 4 in common"]


def test_a_failed_chip_is_listed_with_the_others() -> None:
    record = replace(RECORD, failed=(FailedTarget(target="gfx950", error="the compiler <crashed>"),))

    assert "gfx950 failed: the compiler <crashed>" in dryrun_text(record, Terminal())
    assert "gfx950 failed: the compiler &lt;crashed&gt;" in dryrun_html(record)


def test_html_is_complete_and_escaped() -> None:
    html = dryrun_html(RECORD)

    assert "<title>Dry run</title>" in html
    assert "tl.load(x) # &lt;script&gt;" in html
    assert "RuntimeError: &lt;no&gt;" in html
    assert "s_endpgm" in html
    assert "<dt>location</dt><dd>/home/me/m.py:7</dd>" in html
    assert 'id="kernels-gfx942"' in html
    assert 'id="kernels-sm_90"' in html
    assert ">VGPR<" in html
    assert ">regs<" in html
    assert '<a href="#gfx942-graph-0-triton_red_0" title="triton_red_0">' in html
    assert 'id="gfx942-graph-0-triton_red_0"' in html
    assert "checkbox checked" not in html  # every row is shown at first


def test_report_renders_a_saved_record(tmp_path: Path) -> None:
    file = tmp_path / "dryrun.json"
    file.write_text(dryrun_json(RECORD))
    text, html, sarif = (run_cli("report", str(file), "--output", form) for form in ("text", "html", "sarif"))

    assert (text.code, html.code, sarif.code) == (0, 0, 0)
    assert text.out == dryrun_text(RECORD, Terminal())
    assert html.out == dryrun_html(RECORD)
    assert {result["ruleId"] for result in sarif.json()["runs"][0]["results"]} >= {"DRY001", "DRY002", "DRY011"}


def test_a_wide_table_is_continued_below() -> None:
    from rocsolid.report.dryrun_text import HEADINGS, _columns

    rows = [list(HEADINGS), ["BLOCK=1024, num_warps=4, num_stages=2", *["123456"] * (len(HEADINGS) - 1)]]
    for width in (80, 100):
        lines = _columns(rows, width)
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("  configuration")
        assert lines[2].startswith("  configuration")
    assert len(_columns(rows, 400)) == 2


def test_a_project_ends_with_its_counts_and_lists_only_kernels_with_problems() -> None:
    fine = replace(KERNEL, configs=KERNEL.configs[:1], signature="inferred: k(x=*bf16)")
    spilling = replace(KERNEL, name="spilling", configs=(replace(KERNEL.configs[0], resources=OVER),))
    kernels = (*(replace(fine, name=f"fine_{n}") for n in range(30)), spilling)
    skipped = SkippedKernel(name="open", location="/home/me/o.py:3", reason="no signature")
    run = DryRun(target="gfx942", product="MI300X", kernels=kernels, skipped=(skipped,))
    record = DryRunRecord(workload="src", mode="kernels", runs=(run,))
    text = dryrun_text(record, Terminal())

    assert "gfx942: 31 of 31 kernels compile, 1 spills in every configuration, 1 exceeds the LDS limit" in text
    assert "spilling" in text
    assert "fine_3" not in text
    assert "30 kernels without a problem are not listed" in text
    assert "not compiled: open  me/o.py:3: no signature" in text
    assert "1 kernel not compiled, see the reasons above; a signature can be given with --signatures FILE" in text
    assert "fine_3" in dryrun_text(record, Terminal(), verbose=True)
    page = dryrun_html(record)
    assert "inferred: k(x=*bf16)" in page
    assert "31 of 31 kernels compile" in page


def test_the_last_lines_are_the_verdict() -> None:
    fine = replace(RUN, kernels=tuple(replace(KERNEL, name=f"k{n}", configs=KERNEL.configs[:1]) for n in range(7)))
    for run, verdict in (
        (fine, "gfx942: 7 of 7 kernels compile, no spills, LDS fits"),
        (RUN, "gfx942: 1 of 1 kernel compiles, 1 configuration fails, 1 configuration spills, 1 configuration exceeds the LDS limit"),
        (replace(RUN, kernels=(replace(KERNEL, configs=KERNEL.configs[1:]),)),
         "gfx942: 1 of 1 kernel compiles, 1 spills in every configuration, 1 exceeds the LDS limit"),
        (replace(RUN, kernels=(replace(KERNEL, configs=KERNEL.configs[2:]),)), "gfx942: 0 of 1 kernel compiles, 1 fails"),
    ):  # fmt: skip
        text = dryrun_text(with_findings(DryRunRecord(workload="m.py:build", runs=(run,))), Terminal(width=120))
        assert text.rstrip().split("\n\n")[-2] == verdict


def test_a_narrow_terminal_gets_one_table_and_no_long_line() -> None:
    narrow = dryrun_text(RECORD, Terminal(width=80))

    assert "code bytes" not in narrow
    assert [line for line in narrow.splitlines() if len(line) > 80] == []
    assert "code bytes" in dryrun_text(RECORD, Terminal(width=80), verbose=True)


def test_the_same_finding_for_two_chips_is_shown_once() -> None:
    record = with_findings(DryRunRecord(workload="m.py:build", runs=(RUN, replace(RUN, target="gfx950"))))
    text = dryrun_text(record, Terminal(width=140))

    assert "DRY001 gfx942, gfx950 triton_red_0" in text
    assert "rocsolid dryrun m.py:build --target gfx942 --target gfx950" in text
    assert text.count("DRY001") == 1
    assert len([f for f in record.findings if f.code == "DRY001"]) == 2
