"""The limit on recompiles is raised.

## What it does
Reports `dynamo.recompile_limit` (formerly `cache_size_limit`) set above its default of 8.

## Why it matters
The limit is how torch stops a function that compile_calls again and again; at the limit it runs eagerly. Raised, the function
compile_calls more often before anyone notices. It evicts nothing and prevents no recompile.

## Example
    import torch._dynamo.config as dynamo_config

    dynamo_config.cache_size_limit = 256

## Use instead
    import torch

    torch._dynamo.mark_dynamic(x, 0)
    fast = torch.compile(model)

## When to allow it
When a function really has that many shapes, and each is worth a compile.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC120",
    name="recompile-limit-raised",
    severity=Severity.INFO,
    message="{subject} is raised to {value}; the default is {default}",
    why="At the limit torch falls back to eager. A higher one means more compile_calls before that, and hides why there are so many.",
    fix="Find out what changes from call to call (TORCH_LOGS=recompiles), and mark that dimension dynamic.",
    check="TORCH_LOGS=recompiles python your_script.py",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#recompile-limit",
            "At the limit the other shapes ran eagerly, and nothing was evicted.",
        ),
        upstream("torch 2.13 _dynamo/config.py recompile_limit", "At the limit the frame runs eagerly."),
    ),
)
_DEFAULTS = {
    "dynamo.cache_size_limit": 8,
    "dynamo.recompile_limit": 8,
    "compiler.recompile_limit": 8,
    "dynamo.accumulated_cache_size_limit": 256,
    "dynamo.accumulated_recompile_limit": 256,
}


def check(source: Source) -> Iterator[SourceMatch]:
    """Every assignment of a larger number."""
    for change in setting_changes(source):
        value = change.constant
        if change.id in _DEFAULTS and isinstance(value, int) and value > _DEFAULTS[change.id]:
            yield match_at(change.at, change.id, value=value, default=_DEFAULTS[change.id])
