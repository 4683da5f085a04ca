"""Code sets an environment variable that nothing reads.

## What it does
Reports names set through `os.environ` that begin like a setting of torch, Triton, HIP or HSA but that neither these
libraries nor any file of the project reads.

## Why it matters
A wrong name raises no error. Public guides contain several, such as `INDUCTOR_COORD_DESCENT`.

## Example
    import os

    os.environ["INDUCTOR_COORD_DESCENT"] = "1"

## Use instead
    import os

    os.environ["TORCHINDUCTOR_COORDINATE_DESCENT_TUNING"] = "1"

## When to allow it
When a program outside the project reads it.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.catalog.variables import WRONG_NAMES, family, is_read, similar_variables
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import variable_assignments
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC109",
    name="unread-variable",
    severity=Severity.WARNING,
    message="Environment variable {subject} is set, but nothing reads that name",
    why="It has no effect. {meant}",
    fix="{fix}",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(upstream("torch 2.9 to 2.15, triton 3.7, HIP runtime 6.4.3 and 7.2.4", "The name is in none of them."),),
)

# Private names of a program, and packages whose names only begin alike.
_OTHER_PREFIXES = (
    "_",
    *(f"TORCH{name}" for name in ("VISION", "AUDIO", "TEXT", "DATA", "SERVE", "RL", "X", "AO", "TITAN")),
    *(f"TORCH_{name}" for name in ("MUSA", "NPU", "XLA", "HPU")),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every unknown name in a family whose names are all known. Names that the project itself reads are removed later."""
    if "environ" not in source.text and "putenv" not in source.text:
        return
    for variable in variable_assignments(source):
        name = variable.name
        if name.startswith(_OTHER_PREFIXES) or source.module.startswith("torch."):
            continue
        own = family(name)
        setting = find(name)
        if setting and setting.no_effect:
            yield match_at(variable.at, name, variable=name, meant=setting.no_effect, fix="Remove it.")
        elif name in WRONG_NAMES or (own and own.complete and not is_read(name)):
            right = similar_variables(name)
            hint = f"The correct name is {right[0]}." if right else ""
            yield match_at(
                variable.at, name, variable=name, meant=hint, fix=f"Set {right[0]}." if right else "Remove it."
            )
