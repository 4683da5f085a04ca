"""A compiled module counts its calls in an attribute.

## What it does
Reports `self.calls += 1` in a module, where the class sets the attribute to a number and the code is compiled.

## Why it matters
torch.compile treats a number in an attribute of a module as a constant and checks it at each call. The number is different each
time, so every call compiles again, until the recompile limit is reached and the function runs in eager.

## Example
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * 2

    model = torch.compile(Net())

## Use instead
    import torch

    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2

    model = torch.compile(Net())
    calls = 0

    def step(x):
        global calls
        calls += 1
        return model(x)

## When to allow it
When `torch._dynamo.config.allow_unspec_int_on_nn_module` is on.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Assignment, Region, Site, Source, SourceMatch
from rocsolid.rules.source.syntax import literal, match_in_region, source_text

RULE = Rule(
    code="SRC130",
    name="counter-in-compiled-region",
    severity=Severity.WARNING,
    message="Recompile in every call: `{subject}` in {where}",
    why="A number in an attribute of a module is a constant of the compiled code: a new value compiles again, up to the recompile limit.",
    fix="Count outside of the compiled function, or in a tensor: self.register_buffer(name, torch.zeros((), dtype=torch.long))",
    check="rocsolid compiles FILE.py:FUNCTION",
    since="0.1",
    evidence=(
        source_evidence(
            "torch 2.13 _dynamo/config.py allow_unspec_int_on_nn_module",
            "Integers on modules are specialized by default.",
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Counters in modules. The linter decides later whether the function is compiled."""
    if "+= " not in source.text and "-= " not in source.text:
        return
    for change in source.assignments:
        if (
            isinstance(change.node, ast.AugAssign)
            and isinstance(change.node.op, (ast.Add, ast.Sub))
            and change.name.startswith("self.")
            and not change.scope.name.endswith("__init__")
            and _is_number(change.value)
            and _starts_as_number(change, source)
        ):
            site = Site(change.node, change.name, change.scope, change.block)
            yield from match_in_region(site, Region.COMPILED, source_text(change.node))


def _starts_as_number(change: Assignment, source: Source) -> bool:
    """Whether the class is a module and sets the attribute to a number: not to a tensor, whose changes do not compile again."""
    owner = change.scope.enclosing_class
    if owner is None or not isinstance(owner.node, ast.ClassDef):
        return False
    if not any(source.resolve(base).endswith("Module") for base in owner.node.bases):
        return False
    starts = [a.value for a in source.assignments if a.name == change.name and isinstance(a.node, ast.Assign)]
    return bool(starts) and all(_is_number(value) for value in starts)


def _is_number(value: ast.expr | None) -> bool:
    return type(literal(value)) is int
