"""Code changes a setting whose name does not exist in any supported torch.

## What it does
Compares the names in assignments to `torch._inductor.config`, `torch._dynamo.config` and similar modules, in
`config.patch` and in `options=`, with the names that exist in releases 2.8 to 2.15.

## Why it matters
Config modules reject unknown names: an assignment raises `AttributeError`, an option raises `RuntimeError`. Code that
was not tested fails when this line runs for the first time.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.max_autotune_matmul = False

## Use instead
    import torch._inductor.config as inductor_config

    inductor_config.max_autotune_gemm = False

## When to allow it
When the code supports a release outside that range and checks the version first.
"""

import ast
from collections.abc import Iterator

from rocsolid.errors import near_matches
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import SettingChange, setting_changes
from rocsolid.rules.source.syntax import condition_of, enclosing_blocks, keyword, literal, match_at, mentions
from rocsolid.torchapi.config.names import config_names

RULE = Rule(
    code="SRC106",
    name="setting-name-unknown",
    severity=Severity.CRITICAL,
    message="`{subject}` does not exist in torch 2.8 to 2.15",
    why="`{change}` raises an error, because the config modules reject unknown names.",
    fix="{fix}",
    check="rocsolid settings",
    since="0.1",
    evidence=(source_evidence("torch 2.8 to 2.15, the config modules", "The name is in none of them."),),
)
_OPTIONS_WITHOUT_SETTING = frozenset({"guard_filter_fn", "use_aoti"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Every unknown name, unless the code first checks that it exists."""
    for change in setting_changes(source):
        known = config_names(change.owner)
        if not known or change.name in known or any(name.startswith(f"{change.name}.") for name in known):
            continue
        if (
            _is_checked_first(change)
            or (change.how == "option" and _is_not_inductor_setting(change))
            or source.module.startswith("torch.")
        ):
            continue
        similar_names = near_matches(change.name, known)
        fix = f"Did you mean {' or '.join(similar_names)}?" if similar_names else "Remove the line."
        yield match_at(
            change.site,
            change.id,
            change=change.text,
            underline=change.underline,
            fix=fix,
        )


def _is_checked_first(change: SettingChange) -> bool:
    """Whether the code first checks that the setting exists, or handles the error."""
    for block in enclosing_blocks(change.site):
        test = condition_of(block)
        if block.kind == "try" or (test is not None and mentions(test, ("hasattr", "version", "get_config", "torch_"))):
            return True
    return False


def _is_not_inductor_setting(change: SettingChange) -> bool:
    call = change.site.node
    backend = keyword(call, "backend") if isinstance(call, ast.Call) else None
    return change.name in _OPTIONS_WITHOUT_SETTING or (backend is not None and literal(backend) != "inductor")
