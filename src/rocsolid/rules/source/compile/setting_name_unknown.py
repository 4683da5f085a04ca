"""A setting is moved whose name no supported torch has.

## What it does
Compares names assigned to `torch._inductor.config`, `torch._dynamo.config` and their like, given to `config.patch` or to
`options=`, with the names that the releases 2.8 to 2.15 have.

## Why it matters
The config modules refuse unknown names: the assignment raises `AttributeError`, an option raises `RuntimeError`.
Code that was never run on this path fails in production.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.max_autotune_matmul = False

## Use instead
    import torch._inductor.config as inductor_config

    inductor_config.max_autotune_gemm = False

## When to allow it
When the code supports a release outside that range and asks for the version first.
"""

import ast
from collections.abc import Iterator

from rocsolid.errors import near_matches
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import SettingChange, setting_changes
from rocsolid.rules.source.syntax import condition_of, enclosing_blocks, keyword, literal, match_at, mentions
from rocsolid.torchapi.config.names import config_names

RULE = Rule(
    code="SRC106",
    name="setting-name-unknown",
    severity=Severity.CRITICAL,
    message="{subject} is {how}, and no torch from 2.8 to 2.15 has that name",
    why="The config modules raise an error for a name they do not have.",
    fix="{fix}",
    check="rocsolid settings",
    since="0.1",
    evidence=(upstream("torch 2.8 to 2.15, the config modules", "The name is in none of them."),),
)
_OPTIONS_OF_COMPILE = frozenset({"guard_filter_fn", "use_aoti"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Every name that is neither an entry nor a group of entries, unless the code asks first whether it is there."""
    for change in setting_changes(source):
        known = config_names(change.owner)
        if not known or change.name in known or any(name.startswith(f"{change.name}.") for name in known):
            continue
        if (
            _asked_first(change)
            or (change.how == "option" and _not_an_entry(change))
            or source.module.startswith("torch.")
        ):
            continue
        near = near_matches(change.name, known)
        fix = f"Did you mean {' or '.join(near)}?" if near else "Remove it."
        yield match_at(
            change.at,
            change.id,
            how={"option": "an option", "patched": "patched", "assigned": "assigned"}[change.how],
            fix=fix,
        )


def _asked_first(change: SettingChange) -> bool:
    for block in enclosing_blocks(change.at):
        test = condition_of(block)
        if block.kind == "try" or (test is not None and mentions(test, ("hasattr", "version", "get_config", "torch_"))):
            return True
    return False


def _not_an_entry(change: SettingChange) -> bool:
    call = change.at.node
    backend = keyword(call, "backend") if isinstance(call, ast.Call) else None
    return change.name in _OPTIONS_OF_COMPILE or (backend is not None and literal(backend) != "inductor")
