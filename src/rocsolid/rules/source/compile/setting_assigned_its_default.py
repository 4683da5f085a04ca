"""A setting is assigned the value that it already has by default.

## What it does
Reports assignments of a value that is the default in every release from 2.9 to 2.15, on ROCm and on CUDA.

## Why it matters
Unless something else changed the setting, the line does nothing, and an improvement seen with it has another cause.
For example, `memory_planning` is off by default in every release, so turning it off cannot fix a recursion error.

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
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.setting import same
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at
from rocsolid.torchapi.config.upstream import UpstreamRelease, known_releases, upstream

RULE = Rule(
    code="SRC118",
    name="setting-assigned-its-default",
    severity=Severity.INFO,
    message="`{change}` is already the default in torch 2.9 to 2.15",
    why="Unless something else changed {subject}, the line does nothing.",
    fix="Remove it, or add a comment that says what it protects against. rocsolid's profiles set the values that matter.",
    check="rocsolid settings --values {subject}",
    since="0.1",
    on_by_default=False,
    evidence=(source_evidence("torch 2.9 to 2.15, the config modules", "The default is the same in all of them."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments of the default value."""
    for change in setting_changes(source):
        if change.how != "assigned" or change.constant is None or source.module.startswith("torch."):
            continue
        setting = find(change.id)
        setting_id = setting.id if setting else change.id
        releases = [values for version in known_releases() if (values := upstream(version))]
        if all(_is_default(setting_id, change.constant, release) for release in releases):
            yield match_at(change.site, setting_id, change=change.text)


def _is_default(setting_id: str, value: object, release: UpstreamRelease) -> bool:
    """Whether the value is the default in this release, on ROCm and on CUDA."""
    return (
        setting_id in release.values
        and same(release.values[setting_id], value)
        and setting_id not in release.hip_values
    )
