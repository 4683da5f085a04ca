"""Graph trees are switched off to switch graphs off.

## What it does
Reports `triton.cudagraph_trees = False`, assigned, patched or as an option.

## Why it matters
The setting chooses between two ways to capture. Off, any mode that captures graphs takes the older one, which has fewer
checks; without such a mode the line does nothing. Graphs themselves are switched by `triton.cudagraphs` and by the mode.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.triton.cudagraph_trees = False

## Use instead
    import torch

    model = torch.compile(model, options={"triton.cudagraphs": False})

## When to allow it
When the older way of capturing is what you want.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC112",
    name="cudagraph-trees-disabled",
    severity=Severity.WARNING,
    message="{subject} is set to False",
    why="That chooses the older way of capturing; it does not switch graphs off.",
    fix='Switch graphs off where you compile: options={{"triton.cudagraphs": False}}; leave the trees on.',
    check="rocsolid explain {subject}",
    since="0.1",
    evidence=(
        measured(
            "capture-facts-on-h200#capture-trees-legacy",
            "With trees off, reduce-overhead still began a capture, in the older way.",
        ),
        upstream("torch 2.13 _inductor/compile_fx.py cudagraphify", "Without trees, the older path captures."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every change of the setting to False."""
    for change in setting_changes(source):
        if change.id == "inductor.triton.cudagraph_trees" and change.constant is False:
            yield match_at(change.at, change.id)
