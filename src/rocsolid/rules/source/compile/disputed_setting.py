"""Code changes a setting for which guides recommend opposite values.

## What it does
Reports changes of settings that one public guide turns on and another turns off, with what measurements show.

## Why it matters
A value copied from one guide is the opposite of what another one advises. Neither knows your model.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.aggressive_fusion = True

## Use instead
    import rocsolid as rs

    study = rs.tune("workload.py:build")

## When to allow it
When you have measured it on your model.
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
    why="{dispute}",
    fix="Measure it on your model (`rocsolid tune`), or keep torch's default.",
    check="rocsolid tune FILE:FUNCTION",
    since="0.1",
    evidence=(claim("guides S0, S1 and S3", "They advise opposite values."),),
)

_OWN_RULES = frozenset({"dynamo.recompile_limit", "dynamo.accumulated_recompile_limit"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Every change of a setting that the catalogue marks as disputed."""
    for change in setting_changes(source):
        setting = find(change.id)
        if (
            setting
            and setting.disagreement
            and setting.id not in _OWN_RULES
            and change.constant is not None
            and not source.module.startswith("torch.")
        ):
            yield match_at(
                change.at, setting.id, change=change.text, underline=change.underline, dispute=setting.disagreement
            )
