"""A setting or variable is given a value that is known to hurt.

## What it does
Holds values assigned to settings, given as options, and set as environment variables against the hazards in the catalogue.

## Why it matters
The catalogue says for each such value where it hangs, crashes, answers wrongly or costs time, and by what evidence. Source does
not say which machine it will run on, so that a hazard of one platform is a note here; `rocsolid probe` judges the machine.

## Example
    import os

    os.environ["PYTORCH_HIP_ALLOC_CONF"] = "expandable_segments:True"

## Use instead
    import os

    os.environ["PYTORCH_HIP_ALLOC_CONF"] = "max_split_size_mb:256"

## When to allow it
When the code never runs where the value hurts.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.setting import EVERYWHERE, Hazard, Owner, Setting, same
from rocsolid.model.source import Assignment, Site, Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes, variable_assignments
from rocsolid.rules.source.syntax import is_vendor_specific, match_at

RULE = Rule(
    code="SRC126",
    name="harmful-value",
    severity=Severity.INFO,
    message="{subject} is set to {value}",
    why="{hazard} (Where: {where_it_hurts}.)",
    fix="Leave it out, or ask for the platform first; `rocsolid explain {subject}` tells what to set instead.",
    check="rocsolid probe",
    since="0.1",
    evidence=(upstream("the catalogue of rocsolid", "Each hazard with its own evidence: rocsolid explain SETTING."),),
)
_OWN_RULES = frozenset({"inductor.freezing", "inductor.triton.cudagraph_trees"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Values that are a declared hazard site_of, under no question about the vendor."""
    if source.module.startswith("torch."):
        return
    for change in setting_changes(source):
        setting = find(change.id)
        if setting and setting.id not in _OWN_RULES:
            yield from _judged(change.at, setting.id, setting, change.constant)
    for variable in variable_assignments(source) if "environ" in source.text or "putenv" in source.text else ():
        setting = find(variable.name)
        if setting:
            yield from _judged(variable.at, variable.name, setting, _value(setting, variable.value), variable.value)


def _judged(
    at: Site | Assignment, name: str, setting: Setting, value: object, shown: str = ""
) -> Iterator[SourceMatch]:
    hazard = next((h for h in setting.hazards if _is(h, value)), None)
    if hazard is None or is_vendor_specific(at):
        return
    severity = min(hazard.severity, Severity.WARNING) if hazard.when == EVERYWHERE else Severity.INFO
    yield match_at(
        at,
        name,
        severity=severity.name,
        value=shown or repr(value),
        hazard=hazard.why,
        where_it_hurts=str(hazard.when),
    )


def _is(hazard: Hazard, value: object) -> bool:
    if hazard.contains:
        return isinstance(value, str) and str(hazard.value) != "" and str(hazard.value) in value
    return same(value, hazard.value)


def _value(setting: Setting, text: str) -> object:
    """A variable's text as the setting's value."""
    if setting.owner is Owner.PROCESS or setting.variable is None:
        return text
    return {setting.variable.on: True, setting.variable.off: False}.get(text, text)
