"""A compile mode that captures graphs or searches for kernels is written into the code.

## What it does
Reports `torch.compile(mode="reduce-overhead")` and `mode="max-autotune"` where nothing around asks which device it is.

## Why it matters
Both modes capture device graphs, and `max-autotune` benchmarks kernels for every matmul on top.
On ROCm 7.2.0 to 7.2.3 replays were reported to return wrong numbers, and searches that do not end were reported for both vendors.
A mode in the code beats the settings: `inductor_config.triton.cudagraphs = False` does not switch it off.

## Example
    import torch

    model = torch.compile(model, mode="reduce-overhead")

## Use instead
    import rocsolid as rs

    model = rs.compile(model, profile="fast")

## When to allow it
When the code runs on one kind of device, and the mode was measured and checked there.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import compile_modes
from rocsolid.rules.source.syntax import is_vendor_specific, literal, match_at

RULE = Rule(
    code="SRC101",
    name="mode-hard-coded",
    severity=Severity.WARNING,
    message="torch.compile is always given mode={subject!r}",
    why="The mode {does}, on every device and whatever the settings say.",
    fix='Let the caller choose the mode, or use rs.compile(model, profile="fast"), which chooses by device and version.',
    check="rocsolid explain compile.mode",
    since="0.1",
    evidence=(
        source("torch 2.13 _inductor/__init__.py list_mode_options", "Both modes set triton.cudagraphs."),
        issue("ROCm/clr#279", "Graph replay corrupts output on ROCm 7.2.0 to 7.2.3."),
        issue("pytorch/pytorch#140395", "Compiles hang under max-autotune."),
    ),
)
RISKY = {
    "reduce-overhead": "captures device graphs",
    "max-autotune": "captures device graphs and benchmarks kernels for every matmul",
}


def check(source: Source) -> Iterator[SourceMatch]:
    """Every risky mode that is a text in the call, under no question about the vendor."""
    for site, mode in compile_modes(source):
        value = literal(mode)
        if isinstance(value, str) and value in RISKY and not is_vendor_specific(site):
            yield match_at(site, value, does=RISKY[value])
