"""`torch.compile` is called with both `mode=` and `options=`.

## What it does
Reports calls with `mode=` and `options=` if neither is None.

## Why it matters
torch raises an error: `RuntimeError: Either mode or options can be specified, but both can't be specified at the same
time.`

## Example
    import torch

    model = torch.compile(model, mode="default", options={"max_autotune": False})

## Use instead
    import torch

    model = torch.compile(model, options={"max_autotune": False})

## When to allow it
Never.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import compile_calls
from rocsolid.rules.source.syntax import keyword, literal, match_at

RULE = Rule(
    code="SRC115",
    name="mode-with-options",
    severity=Severity.CRITICAL,
    message='`torch.compile` has both `mode="{mode}"` and `options=`',
    why="torch raises RuntimeError: only one of mode and options can be specified.",
    fix="Keep only options=. A mode is just a name for a set of options.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(source_evidence("torch 2.13 __init__.py compile", "mode and options together raise RuntimeError."),),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Calls with a literal mode and a literal options dictionary."""
    for site in compile_calls(source):
        mode, options = keyword(site.call, "mode"), keyword(site.call, "options")
        if isinstance(literal(mode), str) and isinstance(options, ast.Dict):
            yield match_at(site, "torch.compile", mode=literal(mode), underline=mode)
