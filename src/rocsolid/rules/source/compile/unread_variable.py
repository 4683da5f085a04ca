"""Code sets an environment variable that nothing reads.

## What it does
Reports environment variables that code sets through `os.environ` and that nothing reads: the name begins like a
variable of torch, Triton, HIP or HSA, but neither these libraries nor any file of the project reads it.

## Why it matters
Setting a wrong name raises no error. Public guides recommend several wrong names, such as `INDUCTOR_COORD_DESCENT`.

## Example
    import os

    os.environ["INDUCTOR_COORD_DESCENT"] = "1"

## Use instead
    import os

    os.environ["TORCHINDUCTOR_COORDINATE_DESCENT_TUNING"] = "1"

## When to allow it
When a program outside the project reads the variable.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.catalog.variables import WRONG_NAMES, family, is_read, similar_variables
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import variable_assignments
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC109",
    name="unread-variable",
    severity=Severity.WARNING,
    message="Environment variable {subject} is set, but nothing reads that name",
    why="It has no effect. {hint}",
    fix="{fix}",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence("torch 2.9 to 2.15, triton 3.7, HIP runtime 6.4.3 and 7.2.4", "The name is in none of them."),
    ),
)

# A library that torch, Triton or ROCm does not contain may begin its names with TORCH_ or GPU_ too. With these prefixes it does not.
_OWN_PREFIXES = (
    "TORCHINDUCTOR_", "TORCHDYNAMO_", "INDUCTOR_", "TORCH_COMPILE_", "TORCH_CUDA_", "TORCH_USE_", "TORCH_NCCL_",
    "TRITON_", "AMDGCN_", "HSA_", "ROCR_",
)  # fmt: skip

_OTHER_DEVICES = frozenset({"NPU", "MUSA", "XPU", "HPU", "TPU", "XLA", "MLU", "MACA", "NEURON", "NEURONX"})


def check(source: Source) -> Iterator[SourceMatch]:
    """Names that look like those of torch, Triton or ROCm and are not, and misspelled ones.

    The linter later drops the names that the project itself reads.
    """
    if "environ" not in source.text and "putenv" not in source.text:
        return
    for variable in variable_assignments(source):
        name = variable.name
        if source.module.startswith("torch."):
            continue
        setting = find(name)
        if setting and setting.no_effect:
            yield match_at(variable.site, name, variable=name, hint=setting.no_effect, fix="Remove it.")
        elif name in WRONG_NAMES or _is_unknown(name):
            correct_names = similar_variables(name)
            hint = f"The correct name is {correct_names[0]}." if correct_names else ""
            yield match_at(
                variable.site,
                name,
                variable=name,
                hint=hint,
                fix=f"Set {correct_names[0]}." if correct_names else "Remove it.",
            )


def _is_unknown(name: str) -> bool:
    library = family(name)
    if library is None or not library.complete or is_read(name) or not _OTHER_DEVICES.isdisjoint(name.split("_")):
        return False
    return name.startswith(_OWN_PREFIXES) or bool(similar_variables(name))
