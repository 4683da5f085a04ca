"""A compile mode is chosen by vendor, the wrong way round.

## What it does
Reports a choice between modes that gives `reduce-overhead` or `max-autotune` to ROCm and a milder mode to CUDA.

## Why it matters
The modes that capture graphs and search for kernels are the ones with public reports of wrong results and hangs on ROCm.
A choice that keeps them off CUDA and on ROCm is nearly always a slip.

## Example
    import torch

    mode = "reduce-overhead" if torch.version.hip else "default"
    model = torch.compile(model, mode=mode)

## Use instead
    import rocsolid as rs

    model = rs.compile(model, profile="safe")

## When to allow it
When measurements on your AMD devices say so, and answers were checked against eager.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import issue
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.compile.mode_hard_coded import RISKY
from rocsolid.rules.source.settings import mode_choices_by_vendor
from rocsolid.rules.source.syntax import match_at, site_of

RULE = Rule(
    code="SRC102",
    name="graph-mode-only-on-rocm",
    severity=Severity.CRITICAL,
    message="ROCm is given mode {subject!r}, and other devices {other!r}",
    why="{subject} captures device graphs, which is where ROCm has public reports of wrong results; the choice looks reversed.",
    fix='Turn the choice round, or use rs.compile(model, profile="safe").',
    check="rocsolid explain compile.mode",
    since="0.1",
    evidence=(issue("ROCm/clr#279", "Graph replay corrupts output on ROCm 7.2.0 to 7.2.3."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every choice between two modes by vendor that leaves the risky one to ROCm."""
    for node, on_rocm, elsewhere in mode_choices_by_vendor(source):
        if on_rocm in RISKY and elsewhere not in RISKY:
            yield match_at(site_of(source, node), on_rocm, other=elsewhere)
