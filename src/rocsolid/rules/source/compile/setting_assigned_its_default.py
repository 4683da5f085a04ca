"""A setting is assigned the value it has anyway.

## What it does
Reports assignments of a value that is the default in every release from 2.9 to 2.15, on ROCm and on CUDA.

## Why it matters
Where nothing moved the setting, the line does nothing, and what it is praised for has another cause. `memory_planning`
has been off in every release, so that switching it off fixes no recursion.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.memory_planning = False

## Use instead
    import rocsolid as rs

    with rs.apply(rs.resolve("safe")):
        train()

## When to allow it
When it is a pin against what an image or a library may have moved.
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
    message="{subject} is assigned {value}, which is the default of every release from 2.9 to 2.15",
    why="Unless something else moved it, the line changes nothing.",
    fix="Remove it, or keep it as a pin and say against what; profiles of rocsolid pin what matters.",
    check="rocsolid settings --here {subject}",
    since="0.1",
    evidence=(upstream_source("torch 2.9 to 2.15, the config modules", "The default is the same in all of them."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments at which nothing would be different without them."""
    for change in setting_changes(source):
        if change.how != "assigned" or change.constant is None or source.module.startswith("torch."):
            continue
        setting = find(change.id)
        name = setting.id if setting else change.id
        tables = [table for release in known_releases() if (table := upstream(release))]
        if all(name in t.values and same(t.values[name], change.constant) and name not in t.hip_values for t in tables):
            yield match_at(change.at, name, value=repr(change.constant))
