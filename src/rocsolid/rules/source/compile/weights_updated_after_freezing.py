"""Weights are changed in a program that freezes them into compiled code.

## What it does
Reports `load_state_dict`, `optimizer.step` and the like below the line, in the same function, that switches
`inductor.freezing` on.

## Why it matters
Freezing copies the weights into the compiled code as constants. An update after the first call is not seen: the model
goes on with the old weights, and no error says so.

## Example
    import torch
    import torch._inductor.config as inductor_config

    inductor_config.freezing = True
    fast = torch.compile(model)
    fast(example)
    model.load_state_dict(new_weights)

## Use instead
    import torch

    fast = torch.compile(model)
    fast(example)
    model.load_state_dict(new_weights)

## When to allow it
When the weights are loaded before the first call.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import compile_calls, setting_changes
from rocsolid.rules.source.syntax import match_at, runs_before

RULE = Rule(
    code="SRC116",
    name="weights-updated-after-freezing",
    severity=Severity.CRITICAL,
    message="{subject} changes weights, and freezing was switched on in line {frozen}",
    why="Compiled code holds frozen weights as constants and does not see the change.",
    fix="Leave freezing off, or compile again after the change.",
    check="rocsolid explain frozen-weights-go-stale",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#freezing-stale-weights",
            "A weight changed after the compile left the answer unchanged.",
        ),
        upstream("torch 2.13 _inductor/freezing.py freeze", "Parameters are replaced by constants."),
    ),
)
_UPDATES = ("load_state_dict", "load_adapter", "load_lora_weights", "set_adapter", "fuse_lora")


def check(source: Source) -> Iterator[SourceMatch]:
    """Updates below both the setting and a compile."""
    if "freezing" not in source.text:
        return
    frozen = [m for m in setting_changes(source) if m.id == "inductor.freezing" and m.constant is True]
    compiled = list(compile_calls(source))
    for site in (*source.methods(*_UPDATES), *(s for s in source.methods("step") if "optim" in s.name)):
        before = next((m for m in frozen if m.at.scope is site.scope and m.at.line < site.line), None)
        if before and any(runs_before(c, site) for c in compiled):
            yield match_at(site, site.name, frozen=before.at.line)
