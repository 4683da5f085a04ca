"""A setting or environment variable gets a value that is known to cause problems.

## What it does
Compares the values that the code assigns to settings, passes as options or sets as environment variables with the
harmful values in rocsolid's catalogue.

## Why it matters
The catalogue records on which platforms each value causes hangs, crashes, wrong results or slowdowns, with evidence.
Source code does not show which machine it runs on, so a value that is harmful on only one platform is INFO here and shown only
with `--confidence anywhere`. `rocsolid lint --target gfx942` reports it with its severity on that GPU, and `rocsolid probe` checks
the machine.

## Example
    import os

    os.environ["PYTORCH_HIP_ALLOC_CONF"] = "expandable_segments:True"

## Use instead
    import os

    os.environ["PYTORCH_HIP_ALLOC_CONF"] = "max_split_size_mb:256"

## When to allow it
When the code never runs where the value causes problems.
"""

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from rocsolid.catalog.registry import find
from rocsolid.model.environment import Environment
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.setting import EVERYWHERE, Hazard, Owner, Setting, same
from rocsolid.model.source import Assignment, Site, Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes, variable_assignments
from rocsolid.rules.source.syntax import conditional_blocks, match_at
from rocsolid.rules.source.vendors import is_vendor_specific

RULE = Rule(
    code="SRC126",
    name="harmful-value",
    severity=Severity.INFO,
    message="`{subject} = {value}` is known to cause problems",
    why="{harm} Affected: {platforms}.",
    fix="Remove it, or check the platform first; `rocsolid explain {subject}` shows what to set instead.",
    check="rocsolid probe",
    since="0.1",
    evidence=(source_evidence("rocsolid's catalogue", "Each value has its own evidence: rocsolid explain SETTING."),),
)
_DEBUG_WORDS = ("debug", "determinis", "profil")
# Settings that have a rule of their own.
_COVERED_BY_OTHER_RULES = frozenset({"inductor.freezing", "inductor.triton.cudagraph_trees"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Values that are harmful on at least one platform, in code that does not check the vendor."""
    if source.module.startswith("torch."):
        return
    for change in setting_changes(source):
        setting = find(change.id)
        if setting and setting.id not in _COVERED_BY_OTHER_RULES:
            yield from _harmful_matches(source, change.site, setting.id, setting, change.constant)
    for variable in variable_assignments(source) if "environ" in source.text or "putenv" in source.text else ():
        setting = find(variable.name)
        if setting:
            yield from _harmful_matches(
                source, variable.site, variable.name, setting, _setting_value(setting, variable.value), variable.value
            )


def _harmful_matches(
    source: Source, site: Site | Assignment, name: str, setting: Setting, value: object, display_value: str = ""
) -> Iterator[SourceMatch]:
    hazard = next((h for h in setting.hazards if _matches(h, value)), None)
    # Chosen by an option, for a machine that was checked, or in a function for debugging.
    is_deliberate = conditional_blocks(site.block) or any(word in site.scope.name.lower() for word in _DEBUG_WORDS)
    if hazard is None or setting.disagreement or is_deliberate or is_vendor_specific(site, source, models=False):
        return
    severity = min(hazard.severity, Severity.WARNING) if hazard.when == EVERYWHERE else Severity.INFO
    affected = next((str(w) for w in (hazard.when, setting.valid) if w != EVERYWHERE), "all platforms")
    is_for_rocm = any(word in source.file.lower() for word in ("rocm", "amd"))
    yield match_at(
        site,
        name,
        severity=severity.name,
        uncertain=hazard.when != EVERYWHERE and not is_for_rocm,
        value=display_value or repr(value),
        harm=hazard.why,
        platforms=affected,
    )


def on_target(found: SourceMatch, target: Environment) -> SourceMatch:
    """The match with the severity that its value has on the target; unchanged if the value is harmless there."""
    setting = find(found.subject)
    text = found.facts["value"]
    values = [text] if setting is None or setting.variable is None else [text, _setting_value(setting, text)]
    if found.subject == getattr(setting, "id", ""):  # assigned in Python: the text is a literal
        with suppress(ValueError, SyntaxError):
            values.append(ast.literal_eval(text))
    hazards = (
        [h for h in setting.hazards if h.when.holds(target) and any(_matches(h, v) for v in values)] if setting else []
    )
    if not hazards:
        return found
    facts = {**found.facts, "harm": hazards[0].why, "platforms": str(hazards[0].when)}
    return replace(found, severity=hazards[0].severity.name, uncertain=False, facts=facts)


def _matches(hazard: Hazard, value: object) -> bool:
    if hazard.contains:
        return isinstance(value, str) and str(hazard.value) != "" and str(hazard.value) in value
    return same(value, hazard.value)


def _setting_value(setting: Setting, text: str) -> object:
    """The value of the setting for the text of its environment variable."""
    if setting.owner is Owner.PROCESS or setting.variable is None:
        return text
    return {setting.variable.on: True, setting.variable.off: False}.get(text, text)
