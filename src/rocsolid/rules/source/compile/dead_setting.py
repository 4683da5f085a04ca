"""Code changes a setting that nothing reads.

## What it does
Reports assignments, patches and options of settings that exist but that no supported torch release reads.

## Why it matters
The line looks like a fix and does nothing. Several guides recommend `group_fusion`, but no code reads it in
torch 2.4 or later.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.group_fusion = True

## Use instead
    import torch._inductor.config as inductor_config

## When to allow it
When the code also runs on a fork that reads the setting.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Autofix, Rule, Severity
from rocsolid.model.source import Edit, Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC107",
    name="dead-setting",
    severity=Severity.WARNING,
    message="`{change}` has no effect: nothing reads {subject}",
    why="{no_effect_reason}",
    fix="Remove the line.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    autofix=Autofix.SAFE,
    evidence=(source_evidence("torch 2.4 to 2.15", "No code in the sources reads the setting."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every change of a setting that the catalogue marks as having no effect."""
    for change in setting_changes(source):
        setting = find(change.id)
        if setting and setting.no_effect and not source.module.startswith("torch."):
            edit = Edit(kind="remove") if change.how == "assigned" else None
            yield match_at(
                change.site,
                setting.id,
                change=change.text,
                no_effect_reason=setting.no_effect,
                edit=edit,
                underline=change.underline,
            )
