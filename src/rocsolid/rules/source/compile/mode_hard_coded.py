"""`torch.compile` always uses a mode that captures graphs or autotunes.

## What it does
Reports `torch.compile(mode="reduce-overhead")` and `mode="max-autotune"`, unless the code checks the device.

## Why it matters
Both modes capture CUDA or HIP graphs, and `max-autotune` also benchmarks kernels for every matmul. On ROCm 7.2.0 to
7.2.3, graph replays were reported to return wrong numbers. Autotuning that never ends was reported for AMD and NVIDIA
GPUs. A mode overrides settings: `inductor_config.triton.cudagraphs = False` does not turn graphs off for it.

## Example
    import torch

    model = torch.compile(model, mode="reduce-overhead")

## Use instead
    import rocsolid as rs

    model = rs.compile(model, profile="fast")

## When to allow it
When the code runs on one kind of device, where you have measured the mode and compared its results with eager.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import compile_modes
from rocsolid.rules.source.syntax import literal, match_at
from rocsolid.rules.source.vendors import is_vendor_specific

RULE = Rule(
    code="SRC101",
    name="mode-hard-coded",
    severity=Severity.WARNING,
    message='`torch.compile(mode="{subject}")` is used on every device',
    why="The mode {effect}, whatever the device and the settings are.",
    fix='Let the caller choose the mode, or use rs.compile(model, profile="fast"), which chooses by device and version.',
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence("torch 2.13 _inductor/__init__.py list_mode_options", "Both modes set triton.cudagraphs."),
        issue("ROCm/clr#279", "Graph replay corrupts output on ROCm 7.2.0 to 7.2.3."),
        issue("pytorch/pytorch#140395", "Compiles hang under max-autotune."),
    ),
)
GRAPH_MODES = {
    "reduce-overhead": "captures CUDA or HIP graphs",
    "max-autotune": "captures CUDA or HIP graphs and benchmarks kernels for every matmul",
}


def check(source: Source) -> Iterator[SourceMatch]:
    """Modes written as a literal in the call, in code that does not check the vendor; one in each function."""
    reported: set[tuple[str, str]] = set()
    for site, mode in compile_modes(source):
        value = literal(mode)
        if not isinstance(value, str) or value not in GRAPH_MODES or is_vendor_specific(site, source, models=False):
            continue
        if (site.scope.name, value) not in reported:
            reported.add((site.scope.name, value))
            yield match_at(site, value, effect=GRAPH_MODES[value], underline=mode)
