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
from rocsolid.model.source import Sighting, Source
from rocsolid.rules.source.settings import Move, moves
from rocsolid.rules.source.syntax import blocks, keyword, literal, mentions, saw, test_of
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


def check(source: Source) -> Iterator[Sighting]:
    """Every name that is neither an entry nor a group of entries, unless the code asks first whether it is there."""
    for move in moves(source):
        known = config_names(move.owner)
        if not known or move.name in known or any(name.startswith(f"{move.name}.") for name in known):
            continue
        if _asked_first(move) or (move.how == "option" and _not_an_entry(move)) or source.module.startswith("torch."):
            continue
        near = near_matches(move.name, known)
        fix = f"Did you mean {' or '.join(near)}?" if near else "Remove it."
        yield saw(
            move.at,
            move.id,
            how={"option": "an option", "patched": "patched", "assigned": "assigned"}[move.how],
            fix=fix,
        )


def _asked_first(move: Move) -> bool:
    for block in blocks(move.at):
        test = test_of(block)
        if block.kind == "try" or (test is not None and mentions(test, ("hasattr", "version", "get_config", "torch_"))):
            return True
    return False


def _not_an_entry(move: Move) -> bool:
    call = move.at.node
    backend = keyword(call, "backend") if isinstance(call, ast.Call) else None
    return move.name in _OPTIONS_OF_COMPILE or (backend is not None and literal(backend) != "inductor")
