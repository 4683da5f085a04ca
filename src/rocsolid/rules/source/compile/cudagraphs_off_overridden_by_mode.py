"""`triton.cudagraphs = False` is assigned, but a compile mode overrides it.

## What it does
Reports assignments of `triton.cudagraphs = False`.

## Why it matters
Modes and options override settings: `mode="reduce-overhead"` and `mode="max-autotune"` turn graphs on again for their
function, and `backend="cudagraphs"` ignores the setting.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.triton.cudagraphs = False

## Use instead
    import rocsolid as rs

    rs.guard(profile="safe").keep()

## When to allow it
When no code in the process compiles with one of these modes or with that backend.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC125",
    name="cudagraphs-off-overridden-by-mode",
    severity=Severity.INFO,
    message="`{change}` is overridden by modes that capture graphs",
    why='mode="reduce-overhead" and mode="max-autotune" turn graphs on again. Since torch 2.12, the assignment also affects only this thread.',
    fix='Use rs.guard(profile="safe"), or pass options={{"triton.cudagraphs": False}} to torch.compile.',
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(
        measured(
            "capture-facts-on-h200#capture-modes-over-config",
            "With False assigned, reduce-overhead and max-autotune still captured graphs.",
        ),
        source_evidence(
            "torch 2.13 __init__.py _TorchCompileInductorWrapper.apply_mode", "A mode overrides the settings."
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every assignment of `triton.cudagraphs = False`."""
    for change in setting_changes(source):
        if change.id == "inductor.triton.cudagraphs" and change.how == "assigned" and change.constant is False:
            yield match_at(change.site, change.id, change=change.text)
