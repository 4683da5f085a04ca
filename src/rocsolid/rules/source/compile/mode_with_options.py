"""`torch.compile` is given both a mode and options.

## What it does
Reports calls with `mode=` and `options=` where neither is None.

## Why it matters
torch refuses: `RuntimeError: Either mode or options can be specified, but both can't be specified at the same time.`

## Example
    import torch

    model = torch.compile(model, mode="default", options={"max_autotune": False})

## Use instead
    import torch

    model = torch.compile(model, options={"max_autotune": False})

## When to allow it
Never.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import compile_calls
from rocsolid.rules.source.syntax import keyword, literal, match_at, source_text

RULE = Rule(
    code="SRC115",
    name="mode-with-options",
    severity=Severity.CRITICAL,
    message="torch.compile is given mode={mode} and options= together",
    why="torch raises RuntimeError for that.",
    fix="Keep the options; a mode is only a name for some of them.",
    check="rocsolid explain compile.mode",
    since="0.1",
    evidence=(upstream("torch 2.13 __init__.py compile", "mode and options together raise RuntimeError."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Calls in which both are written out."""
    import ast

    for site in compile_calls(source):
        mode, options = keyword(site.call, "mode"), keyword(site.call, "options")
        if isinstance(literal(mode), str) and isinstance(options, ast.Dict):
            yield match_at(site, "torch.compile", mode=source_text(mode))
