"""Freezing is given as an option, where it does nothing.

## What it does
Reports `torch.compile(options={"freezing": True})`.

## Why it matters
Whether weights are frozen is decided before options are put in force: nothing is frozen, and no error says so. What was
measured with it was measured without it.

## Example
    import torch

    model = torch.compile(model, options={"freezing": True})

## Use instead
    import torch

    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        model = torch.compile(model)
        model(example)

## When to allow it
When a release of torch is known to honour it.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC117",
    name="freezing-as-option",
    severity=Severity.WARNING,
    message="torch.compile is given freezing among its options",
    why="As an option it does nothing: what is frozen is decided before options hold.",
    fix="Put torch._inductor.config.patch(freezing=True) and torch.no_grad() around the first call.",
    check="rocsolid explain inductor.freezing",
    since="0.1",
    evidence=(
        measured("compiler-facts-torch-2.13-cpu#freezing-stale-weights", "Given as an option, nothing was frozen."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every such option."""
    for change in setting_changes(source):
        if change.id == "inductor.freezing" and change.how == "option" and change.constant is True:
            yield match_at(change.at, change.id)
