"""The limit on recompiles is raised.

## What it does
Reports `dynamo.recompile_limit` (formerly `cache_size_limit`) set above its default of 8.

## Why it matters
The limit is how torch stops a function that compiles again and again; at the limit it runs eagerly. Raised, the function
compiles more often before anyone notices. It evicts nothing and prevents no recompile.

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
from rocsolid.model.source import Sighting, Source
from rocsolid.rules.source.settings import moves
from rocsolid.rules.source.syntax import saw

RULE = Rule(
    code="SRC120",
    name="recompile-limit-raised",
    severity=Severity.INFO,
    message="{subject} is raised to {value}; the default is {default}",
    why="At the limit torch falls back to eager. A higher one means more compiles before that, and hides why there are so many.",
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


def check(source: Source) -> Iterator[Sighting]:
    """Every assignment of a larger number."""
    for move in moves(source):
        value = move.constant
        if move.id in _DEFAULTS and isinstance(value, int) and value > _DEFAULTS[move.id]:
            yield saw(move.at, move.id, value=value, default=_DEFAULTS[move.id])
