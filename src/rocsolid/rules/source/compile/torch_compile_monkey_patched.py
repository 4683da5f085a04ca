"""Code replaces `torch.compile` itself.

## What it does
Reports `torch.compile = ...` and `setattr(torch, "compile", ...)`.

## Why it matters
The replacement does not cover other entry points: `nn.Module.compile` keeps the old function if it was imported
earlier, and `torch._dynamo.optimize` and `torch._inductor.compile` never use it. A wrapper that forces `mode=` breaks
every call with `options=`. The original is usually never restored.

## Example
    import torch

    original = torch.compile

    def safe(model=None, **options):
        options["mode"] = "default"
        return original(model, **options)

    torch.compile = safe

## Use instead
    import rocsolid as rs

    rs.guard(profile="safe").keep()

## When to allow it
In a test that restores it.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import COMPILE_NAMES
from rocsolid.rules.source.syntax import argument, literal, match_at, mentions

RULE = Rule(
    code="SRC110",
    name="torch-compile-monkey-patched",
    severity=Severity.WARNING,
    message="`{subject}` is replaced for the whole process",
    why="Other entry points into the compiler bypass the replacement, and calls with options= may fail.",
    fix='Use rs.guard(profile="safe"), which covers every entry point into the compiler and can be undone.',
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#monkey-patch-compile",
            "With such a wrapper, options= raised an error and max-autotune still captured graphs.",
        ),
        source_evidence("torch 2.13 __init__.py compile", "mode and options together raise RuntimeError."),
        source_evidence(
            "torch 2.13 _inductor/__init__.py", "compile, standalone_compile and others do not call torch.compile."
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Assignments to the name, with `=` or `setattr`."""
    for assignment in source.assignments:
        if (
            assignment.name in COMPILE_NAMES
            and isinstance(assignment.target, ast.Attribute)
            and not _is_saved_original(assignment.value)
        ):
            yield match_at(assignment, assignment.name)
    for site in source.calls_to("setattr"):
        if source.resolve(argument(site.call, 0)) == "torch" and literal(argument(site.call, 1)) == "compile":
            yield match_at(site, "torch.compile")


def _is_saved_original(value: ast.expr | None) -> bool:
    """Whether the assigned value looks like the saved original, judged by its name."""
    return value is not None and mentions(value, ("orig", "old", "saved", "real", "previous"))
