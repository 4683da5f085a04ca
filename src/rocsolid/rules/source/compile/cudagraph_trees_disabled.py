"""`triton.cudagraph_trees = False` does not turn graphs off.

## What it does
Reports `triton.cudagraph_trees = False` as an assignment, a patch or an option.

## Why it matters
The setting selects one of two capture implementations. With False, every mode that captures graphs uses the older one,
which has fewer checks. Without such a mode, the setting does nothing. To turn graphs on or off, use the setting
`triton.cudagraphs` or another mode.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.triton.cudagraph_trees = False

## Use instead
    import torch

    model = torch.compile(model, options={"triton.cudagraphs": False})

## When to allow it
When you want the older implementation.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC112",
    name="cudagraph-trees-disabled",
    severity=Severity.WARNING,
    message="`{change}` does not turn graphs off",
    why="It selects the older of two capture implementations, which has fewer checks, for modes that capture graphs.",
    fix='Turn graphs off where you compile: options={{"triton.cudagraphs": False}}. Leave cudagraph_trees on.',
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "capture-facts-on-h200#capture-trees-legacy",
            "With cudagraph_trees off, reduce-overhead still captured, with the older implementation.",
        ),
        source_evidence(
            "torch 2.13 _inductor/compile_fx.py cudagraphify",
            "Without cudagraph_trees, the older implementation captures.",
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every change of the setting to False."""
    for change in setting_changes(source):
        if change.id == "inductor.triton.cudagraph_trees" and change.constant is False:
            yield match_at(change.site, change.id, change=change.text, underline=change.underline)
