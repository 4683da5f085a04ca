"""Dry runs as text, JSON and HTML."""

from dataclasses import replace
from pathlib import Path

from tests.support import run_cli

from rocsolid.api.dryrun import judged
from rocsolid.model.dryrun import (
    DryGraph,
    DryRun,
    DryRunRecord,
    ExternCall,
    FailedTarget,
    GraphBreak,
    Kernel,
    KernelConfig,
    Resources,
    Search,
    Unfit,
)
from rocsolid.report.dryrun_page import dryrun_html
from rocsolid.report.dryrun_text import differences, dryrun_json, dryrun_text
from rocsolid.report.terminal import Terminal

USED = Resources(registers=44, lds_bytes=8192, lds_limit_bytes=65536, occupancy=8, block=4096, code_bytes=1456)
OVER = replace(USED, lds_bytes=65537, spills=3)
KERNEL = Kernel(
    name="triton_red_0",
    origin="inductor",
    graph="graph 0",
    source="tl.load(x) # <script>",
    places=("/home/me/m.py:7", "/home/me/m.py:9"),
    configs=(
        KernelConfig(values={"XBLOCK": 2}, warps=8, stages=1, grid=(16384,), resources=USED, asm="s_endpgm"),
        KernelConfig(values={"XBLOCK": 4}, warps=8, stages=1, resources=OVER),
        KernelConfig(values={"XBLOCK": 8}, warps=8, stages=1, error="RuntimeError: <no>"),
    ),
)
GRAPH = DryGraph(
    name="graph 0",
    kind="inference",
    kernels=("triton_red_0",),
    externs=(ExternCall(name="mm", library="rocBLAS", count=2, places=("/home/me/m.py:8",)),),
    nodes=3,
    unfit=(Unfit(reason="y is on the CPU", place="/home/me/m.py:9"),),
)
RUN = DryRun(
    target="gfx942",
    product="AMD Instinct MI300X",
    torch="2.13.0",
    triton="3.7.1",
    graphs=(GRAPH,),
    kernels=(KERNEL,),
    breaks=(GraphBreak(reason="print", place="/home/me/m.py:5"),),
    searches=(Search(op="mm", shapes="bf16[2, 2]", choices=37, compiled=2, seconds=3.2, failed=1),),
    notes=("loaded for real",),
)
OTHER = replace(RUN, target="sm_90", product="NVIDIA H100", kernels=(replace(KERNEL, configs=KERNEL.configs[:1]),))
RECORD = judged(DryRunRecord(workload="m.py:build", train=True, runs=(RUN,), against=OTHER))


def test_text_tells_everything_that_was_seen() -> None:
    text = dryrun_text(RECORD, Terminal(width=140))

    for line in (
        "m.py:build · default · training",
        "gfx942 AMD Instinct MI300X · 1 kernel in 3 configurations",
        "  note: loaded for real",
        "  graph 0 (inference): 1 launch, 2 library calls; not fit for capture",
        "    because y is on the CPU /home/me/m.py:9",
        "    2 × mm → rocBLAS  me/m.py:8",
        "graph break at /home/me/m.py:5: print",
        "autotuning of mm bf16[2, 2]: 37 choices, 2 compiled in 3 s, 1 of them failed",
        "triton_red_0  me/m.py:7 and 1 more line",
        "  XBLOCK=4 warps=8 stages=1    44     0     0       3        0  65537 over",
        "  XBLOCK=8 warps=8 stages=1: RuntimeError: <no>",
        "gfx942 against sm_90 (NVIDIA H100)",
        "triton_red_0 fails on gfx942 and compiles on sm_90",
    ):
        assert line in text
    assert "grid 16384" not in text
    assert "XBLOCK=2 warps=8 stages=1: grid 16384" in dryrun_text(RECORD, Terminal(width=140), verbose=True)


def test_what_differs_from_the_other_vendor() -> None:
    spilling = replace(KERNEL, configs=KERNEL.configs[1:2])
    here = replace(RUN, kernels=(spilling, replace(KERNEL, name="ours")))
    there = replace(OTHER, kernels=(*OTHER.kernels, replace(KERNEL, name="theirs")))

    assert list(differences(here, there)) == [
        "triton_red_0 spills 3 registers at best on gfx942, and none on sm_90",
        "ours is made for gfx942 only",
        "theirs is made for sm_90 only",
        "triton_red_0 has other configurations: 1 on gfx942, 1 on sm_90, 0 of them the same",
    ]
    assert list(differences(RUN, RUN)) == []


def test_many_kernels_with_other_configurations_are_one_line() -> None:
    fine = replace(KERNEL, configs=KERNEL.configs[:1])
    four = [replace(fine, name=f"k{number}") for number in range(4)]
    wider = [replace(k, configs=(*k.configs, replace(k.configs[0], warps=4))) for k in four]

    said = list(differences(replace(RUN, kernels=tuple(four)), replace(OTHER, kernels=tuple(wider))))

    assert said == ["each of 4 kernels has other configurations: 4 on gfx942, 8 on sm_90, 4 of them the same"]


def test_a_chip_that_failed_is_said_beside_the_others() -> None:
    record = replace(RECORD, failed=(FailedTarget(target="gfx950", error="the compiler <fell> over"),))

    assert "nothing for gfx950: the compiler <fell> over" in dryrun_text(record, Terminal())
    assert "Nothing for gfx950: the compiler &lt;fell&gt; over" in dryrun_html(record)


def test_html_is_whole_and_what_was_seen_cannot_become_markup() -> None:
    html = dryrun_html(RECORD)

    assert "<title>What will it meet on that chip?</title>" in html
    assert "tl.load(x) # &lt;script&gt;" in html
    assert "RuntimeError: &lt;no&gt;" in html
    assert "s_endpgm" in html
    assert "<dt>at</dt><dd>/home/me/m.py:7</dd>" in html
    assert 'id="kernels-gfx942"' in html
    assert 'id="kernels-sm_90"' in html
    assert ">VGPR<" in html
    assert ">regs<" in html
    assert '<a href="#gfx942-graph-0-triton_red_0" title="triton_red_0">' in html
    assert 'id="gfx942-graph-0-triton_red_0"' in html
    assert "checkbox checked" not in html  # every row is shown at first


def test_a_saved_record_is_rendered_by_report(tmp_path: Path) -> None:
    file = tmp_path / "dryrun.json"
    file.write_text(dryrun_json(RECORD))
    text, html, sarif = (run_cli("report", str(file), "--output", form) for form in ("text", "html", "sarif"))

    assert (text.code, html.code, sarif.code) == (0, 0, 0)
    assert text.out == dryrun_text(RECORD, Terminal())
    assert html.out == dryrun_html(RECORD)
    assert {result["ruleId"] for result in sarif.json()["runs"][0]["results"]} >= {"DRY001", "DRY002", "DRY011"}
