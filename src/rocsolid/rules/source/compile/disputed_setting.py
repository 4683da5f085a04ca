"""Code changes a setting for which guides recommend opposite values.

## What it does
Reports changes of settings that one public guide turns on and another turns off. The finding says what each guide
recommends and what rocsolid measured.

## Why it matters
A value copied from one guide is the opposite of what another guide recommends. Neither guide was written for your
model, so measure before you choose.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.aggressive_fusion = True

## Use instead
    import rocsolid as rs

    study = rs.tune("workload.py:build")

## When to allow it
When you have measured the value on your model.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.model.evidence import claim
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC128",
    name="disputed-setting",
    severity=Severity.INFO,
    message="Guides disagree about `{change}`",
    why="{disagreement}",
    fix="Measure it on your model (`rocsolid tune`), or keep torch's default.",
    check="rocsolid tune FILE.py:FUNCTION",
    since="0.1",
    on_by_default=False,
    evidence=(claim("overview guide, porting guide and Inductor config guide", "They recommend opposite values."),),
)

# Settings that have a rule of their own.
_COVERED_BY_OTHER_RULES = frozenset({"dynamo.recompile_limit", "dynamo.accumulated_recompile_limit"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Every change of a setting that the catalogue marks as disputed."""
    for change in setting_changes(source):
        setting = find(change.id)
        if (
            setting
            and setting.disagreement
            and setting.id not in _COVERED_BY_OTHER_RULES
            and change.constant is not None
            and not source.module.startswith("torch.")
        ):
            yield match_at(
                change.site,
                setting.id,
                change=change.text,
                underline=change.underline,
                disagreement=setting.disagreement,
            )
