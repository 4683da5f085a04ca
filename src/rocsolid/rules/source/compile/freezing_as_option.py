"""`options={"freezing": True}` does nothing.

## What it does
Reports `torch.compile(options={"freezing": True})`.

## Why it matters
Torch decides whether to freeze weights before it applies options. Nothing is frozen, and there is no error. A
measurement with this option was made without freezing.

## Example
    import torch

    model = torch.compile(model, options={"freezing": True})

## Use instead
    import torch

    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        model = torch.compile(model)
        model(example)

## When to allow it
When you know that your torch release supports this option.
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
    message='`options={{"freezing": True}}` does not freeze anything',
    why="Torch decides what to freeze before it applies options.",
    fix="Put `with torch.no_grad(), torch._inductor.config.patch(freezing=True):` around the first call.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured("compiler-facts-torch-2.13-cpu#freezing-stale-weights", "Given as an option, nothing was frozen."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every option that turns freezing on."""
    for change in setting_changes(source):
        if change.id == "inductor.freezing" and change.how == "option" and change.constant is True:
            yield match_at(change.site, change.id, underline=change.underline)
