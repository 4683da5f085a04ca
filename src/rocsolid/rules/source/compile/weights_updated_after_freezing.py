"""Weights are changed after `inductor.freezing` made them constants.

## What it does
Reports `load_state_dict`, `optimizer.step` and similar calls that come after `inductor.freezing` was turned on in the
same function.

## Why it matters
Freezing copies the weights into the compiled code as constants. An update after the first call is ignored: the model
continues with the old weights, without an error.

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
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import compile_calls, setting_changes
from rocsolid.rules.source.syntax import match_at, runs_before

RULE = Rule(
    code="SRC116",
    name="weights-updated-after-freezing",
    severity=Severity.CRITICAL,
    message="`{subject}` changes frozen weights (`freezing` was turned on in line {freezing_line})",
    why="Compiled code contains the frozen weights as constants and ignores the change.",
    fix="Turn freezing off, or compile again after the change.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#freezing-stale-weights",
            "Changing a weight after the compile did not change the result.",
        ),
        source_evidence("torch 2.13 _inductor/freezing.py freeze", "Parameters are replaced by constants."),
    ),
)
_UPDATES = ("load_state_dict", "load_adapter", "load_lora_weights", "set_adapter", "fuse_lora")


def check(source: Source) -> Iterator[SourceMatch]:
    """Weight updates after freezing was turned on and something was compiled."""
    if "freezing" not in source.text:
        return
    freezing_changes = [
        change for change in setting_changes(source) if change.id == "inductor.freezing" and change.constant is True
    ]
    compiles = list(compile_calls(source))
    for site in (*source.methods(*_UPDATES), *(s for s in source.methods("step") if "optim" in s.name)):
        freezing = next(
            (change for change in freezing_changes if change.site.scope is site.scope and change.site.line < site.line),
            None,
        )
        if freezing and any(runs_before(call, site) for call in compiles):
            yield match_at(site, site.name, freezing_line=freezing.site.line)
