"""Freezing is turned on for every compile in the process.

## What it does
Reports assignments of `inductor.freezing = True`.

## Why it matters
It applies to everything this thread compiles from then on, including models that are still trained. If gradients are
off at the compile, later changes of the weights are ignored. If gradients are on, freezing does nothing.

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
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC121",
    name="freezing-for-all-compiles",
    severity=Severity.INFO,
    message="`{change}` freezes the weights of everything this thread compiles",
    why="If gradients are off at the compile, later changes of the weights are ignored. If gradients are on, freezing does nothing.",
    fix="Put `with torch.no_grad(), torch._inductor.config.patch(freezing=True):` around the first call of that model.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#freezing-stale-weights",
            "With gradients off, weights were frozen. With gradients on, or with freezing as an option, nothing was frozen.",
        ),
        source_evidence("torch 2.13 _inductor/compile_fx.py", "Freezing is skipped while gradients are on."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every assignment of True, unless the same function assigns the setting again later."""
    assigned = [
        change for change in setting_changes(source) if change.id == "inductor.freezing" and change.how == "assigned"
    ]
    for change in assigned:
        restored = any(
            later.site.scope is change.site.scope and later.site.line > change.site.line for later in assigned
        )
        if change.constant is True and not restored:
            yield match_at(change.site, change.id, change=change.text)
