"""A mode that captures graphs is used only on ROCm; the choice looks reversed.

## What it does
Reports code that uses `reduce-overhead` or `max-autotune` on ROCm and a mode without graphs on CUDA.

## Why it matters
There are public reports of wrong results and hangs on ROCm with the modes that capture graphs and autotune. Code that
uses these modes on ROCm but not on CUDA is nearly always a mistake.

## Example
    import torch

    mode = "reduce-overhead" if torch.version.hip else "default"
    model = torch.compile(model, mode=mode)

## Use instead
    import rocsolid as rs

    model = rs.compile(model, profile="safe")

## When to allow it
When the mode is faster on your AMD GPUs and you have compared its results with eager.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.compile.mode_hard_coded import GRAPH_MODES
from rocsolid.rules.source.settings import mode_choices_by_vendor
from rocsolid.rules.source.syntax import match_at, site_of

RULE = Rule(
    code="SRC102",
    name="graph-mode-only-on-rocm",
    severity=Severity.CRITICAL,
    message='ROCm uses mode="{subject}", other devices use mode="{other_mode}": the choice looks reversed',
    why="{subject} captures HIP graphs, for which there are public reports of wrong results on ROCm.",
    fix='Swap the two modes, or use rs.compile(model, profile="safe").',
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(issue("ROCm/clr#279", "Graph replay corrupts output on ROCm 7.2.0 to 7.2.3."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every choice between modes by vendor that uses graphs only on ROCm."""
    for node, on_rocm, other_mode in mode_choices_by_vendor(source):
        if on_rocm in GRAPH_MODES and other_mode not in GRAPH_MODES:
            yield match_at(site_of(source, node), on_rocm, other_mode=other_mode)
