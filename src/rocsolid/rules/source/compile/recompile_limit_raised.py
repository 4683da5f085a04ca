"""The recompile limit is raised.

## What it does
Reports `dynamo.recompile_limit` (formerly `cache_size_limit`) above its default of 8, and `accumulated_recompile_limit`
above its default of 256.

## Why it matters
The limit stops a function from compiling again and again: at the limit, it runs in eager. With a higher limit, the
function compiles more often before the problem is noticed. A higher limit prevents no recompile, and nothing is
evicted at the limit.

## Example
    import torch._dynamo.config as dynamo_config

    dynamo_config.cache_size_limit = 256

## Use instead
    import torch

    torch._dynamo.mark_dynamic(x, 0)
    fast = torch.compile(model)

## When to allow it
When a function really is called with that many shapes, and each is worth a compile.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import SettingChange, setting_changes
from rocsolid.rules.source.syntax import match_at
from rocsolid.torchapi.config.upstream import known_releases
from rocsolid.torchapi.config.upstream import upstream as upstream_release

RULE = Rule(
    code="SRC120",
    name="recompile-limit-raised",
    severity=Severity.INFO,
    message="`{subject}` is raised to {value} (default {default})",
    why="At the limit, torch falls back to eager. A higher limit allows more compiles before that, and hides their cause.",
    fix="Find out what changes between calls (TORCH_LOGS=recompiles), and mark it dynamic: torch._dynamo.mark_dynamic(x, 0)",
    check="TORCH_LOGS=recompiles python your_script.py",
    since="0.1",
    on_by_default=False,
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#recompile-limit",
            "At the limit, calls with new shapes ran in eager, and nothing was evicted.",
        ),
        source_evidence("torch 2.13 _dynamo/config.py recompile_limit", "At the limit, the frame runs in eager."),
    ),
)
_LIMITS = ("dynamo.recompile_limit", "dynamo.accumulated_recompile_limit")


def check(source: Source) -> Iterator[SourceMatch]:
    """Every assignment of a number above the default of the newest known release."""
    for change in setting_changes(source):
        value, default = change.constant, _default(change)
        if isinstance(value, int) and default is not None and value > default:
            yield match_at(change.site, change.id, value=value, default=default, underline=change.underline)


def _default(change: SettingChange) -> int | None:
    """The default in the newest known release if the setting is a recompile limit, else None."""
    # torch.compiler.config has aliases of some Dynamo settings.
    setting = find(f"dynamo.{change.name}" if change.owner == "compiler" else change.id)
    newest = upstream_release(known_releases()[-1])
    if setting is None or setting.id not in _LIMITS or newest is None:
        return None
    default = newest.default(setting.id, hip=False)
    return default if isinstance(default, int) else None
