"""Graphs are switched off by an assignment, which a mode overrides.

## What it does
Reports `triton.cudagraphs = False` as an assignment.

## Why it matters
Modes and options lie on top of the settings: `mode="reduce-overhead"` and `"max-autotune"` switch graphs on again for
their function, whatever was assigned, and `backend="cudagraphs"` never asks.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.triton.cudagraphs = False

## Use instead
    import rocsolid as rs

    rs.guard(profile="safe").keep()

## When to allow it
When no code in the process compile_calls with a mode.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC125",
    name="cudagraphs-off-overridden-by-mode",
    severity=Severity.INFO,
    message="{subject} is assigned False",
    why="A compile with mode reduce-overhead or max-autotune switches it on again; since 2.12 it holds in this thread only.",
    fix='Use rs.guard(profile="safe"), or pass options={{"triton.cudagraphs": False}} where you compile.',
    check="rocsolid explain {subject}",
    since="0.1",
    evidence=(
        measured(
            "capture-facts-on-h200#capture-modes-over-config",
            "With False assigned, reduce-overhead and max-autotune captured all the same.",
        ),
        upstream("torch 2.13 __init__.py _TorchCompileInductorWrapper.apply_mode", "A mode patches the settings."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every such assignment."""
    for change in setting_changes(source):
        if change.id == "inductor.triton.cudagraphs" and change.how == "assigned" and change.constant is False:
            yield match_at(change.at, change.id)
