"""A program sets an environment variable that nothing reads.

## What it does
Reports names set through `os.environ` that begin like a setting of torch, Triton, HIP or HSA, and that neither these nor
any file of the project ask for.

## Why it matters
A wrong name raises no error. Public guides have several, such as `INDUCTOR_COORD_DESCENT`.

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
from rocsolid.model.source import Sighting, Source
from rocsolid.rules.source.syntax import saw
from rocsolid.rules.source.variables import variables_set

RULE = Rule(
    code="SRC109",
    name="variable-nobody-reads",
    severity=Severity.WARNING,
    message="{subject} is set, and nothing we know reads that name",
    why="It has no effect. {meant}",
    fix="{fix}",
    check="rocsolid explain {subject}",
    since="0.1",
    evidence=(upstream("torch 2.9 to 2.15, triton 3.7, HIP runtime 6.4.3 and 7.2.4", "The name is in none of them."),),
)

# Between parts of one program, or of packages that only begin alike.
_NOT_OURS = (
    "_",
    *(f"TORCH{name}" for name in ("VISION", "AUDIO", "TEXT", "DATA", "SERVE", "RL", "X", "AO", "TITAN")),
    *(f"TORCH_{name}" for name in ("MUSA", "NPU", "XLA", "HPU")),
)


def check(source: Source) -> Iterator[Sighting]:
    """Every name of a family we hold in full that is in no list; what the project reads itself is taken out later."""
    if "environ" not in source.text and "putenv" not in source.text:
        return
    for variable in variables_set(source):
        name = variable.name
        if name.startswith(_NOT_OURS) or source.module.startswith("torch."):
            continue
        own = family(name)
        setting = find(name)
        if setting and setting.inert:
            yield saw(variable.at, name, variable=name, meant=setting.inert, fix="Remove it.")
        elif name in WRONG_NAMES or (own and own.complete and not is_read(name)):
            right = similar_variables(name)
            said = f"The name that is read: {right[0]}." if right else ""
            yield saw(variable.at, name, variable=name, meant=said, fix=f"Set {right[0]}." if right else "Remove it.")
