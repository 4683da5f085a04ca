"""A setting is assigned the value that it already has by default.

## What it does
Reports assignments of a value that is the default in every release from 2.9 to 2.15, on ROCm and on CUDA.

## Why it matters
Unless something else changed the setting, the line does nothing, and an improvement seen with it has another cause.
`memory_planning` has been off in every release, so turning it off fixes no recursion.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.memory_planning = False

## Use instead
    import rocsolid as rs

    with rs.apply(rs.resolve("safe")):
        train()

## When to allow it
When it protects against an image or a library that may have changed the setting.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.model.evidence import source as upstream_source
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.setting import same
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at
from rocsolid.torchapi.config.upstream import known_releases, upstream

RULE = Rule(
    code="SRC118",
    name="setting-assigned-its-default",
    severity=Severity.INFO,
    message="`{change}` is already the default in torch 2.9 to 2.15",
    why="Unless something else changed {subject}, the line does nothing.",
    fix="Remove it, or add a comment that says what it protects against. rocsolid's profiles set the values that matter.",
    check="rocsolid settings --values {subject}",
    since="0.1",
    evidence=(upstream_source("torch 2.9 to 2.15, the config modules", "The default is the same in all of them."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments of the default value."""
    for change in setting_changes(source):
        if change.how != "assigned" or change.constant is None or source.module.startswith("torch."):
            continue
        setting = find(change.id)
        name = setting.id if setting else change.id
        tables = [table for release in known_releases() if (table := upstream(release))]
        if all(name in t.values and same(t.values[name], change.constant) and name not in t.hip_values for t in tables):
            yield match_at(change.at, name, change=change.text)
