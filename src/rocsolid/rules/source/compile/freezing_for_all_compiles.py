"""Freezing is turned on for every compile in the process.

## What it does
Reports assignments of `inductor.freezing = True`.

## Why it matters
It applies to everything this thread compiles from then on, including models that are still trained. With gradients on,
it does nothing; with gradients off, later changes of the weights are ignored.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.freezing = True

## Use instead
    import torch

    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        fast = torch.compile(model)
        fast(example)

## When to allow it
In a program that serves one model whose weights never change.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC121",
    name="freezing-for-all-compiles",
    severity=Severity.INFO,
    message="`{change}` freezes the weights of everything this thread compiles",
    why="Without gradients, later changes of the weights are ignored. With gradients, it does nothing.",
    fix="Put `with torch.no_grad(), torch._inductor.config.patch(freezing=True):` around the first call of that model.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#freezing-stale-weights",
            "Frozen without gradients; with gradients, or given as an option, nothing was frozen.",
        ),
        upstream("torch 2.13 _inductor/compile_fx.py", "Freezing is left out while gradients are on."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every such assignment that the same function does not undo."""
    assigned = [m for m in setting_changes(source) if m.id == "inductor.freezing" and m.how == "assigned"]
    for change in assigned:
        restored = any(m.at.scope is change.at.scope and m.at.line > change.at.line for m in assigned)
        if change.constant is True and not restored:
            yield match_at(change.at, change.id, change=change.text)
