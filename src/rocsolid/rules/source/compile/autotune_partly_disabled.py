"""Autotuning is turned off in only one of its three settings.

## What it does
Reports `max_autotune = False` in a file that does not set `max_autotune_pointwise` and `max_autotune_gemm`.

## Why it matters
Each of the three settings starts autotuning. The SGLang images for ROCm set the variables of two of them, so code that
turns off only `max_autotune` still autotunes.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.max_autotune = False

## Use instead
    import torch._inductor.config as inductor_config

    inductor_config.max_autotune = False
    inductor_config.max_autotune_pointwise = False
    inductor_config.max_autotune_gemm = False

## When to allow it
When the environment is known to set none of these variables.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC119",
    name="autotune-partly-disabled",
    severity=Severity.INFO,
    message="`inductor.max_autotune` is turned off, but {subject} {are} not",
    why="Each of the three settings starts autotuning, and the environment may have turned the others on.",
    fix='Turn all three off, or use rs.compile(model, profile="safe").',
    check="rocsolid probe",
    since="0.1",
    evidence=(
        upstream(
            "torch 2.13 _inductor/utils.py use_triton_template", "max_autotune or max_autotune_gemm starts the search."
        ),
        upstream("sglang docker/Dockerfile.rocm", "Sets TORCHINDUCTOR_MAX_AUTOTUNE and _POINTWISE to 1."),
    ),
)
_OTHERS = ("max_autotune_pointwise", "max_autotune_gemm")


def check(source: Source) -> Iterator[SourceMatch]:
    """The first such assignment in a file, unless the other two are set too."""
    if "max_autotune" not in source.text:
        return
    changes = [m for m in setting_changes(source) if m.owner == "inductor" and m.how == "assigned"]
    missing = [name for name in _OTHERS if not any(m.name == name for m in changes)]
    first = next((m for m in changes if m.name == "max_autotune" and m.constant is False), None)
    if first and missing:
        yield match_at(first.at, " and ".join(missing), are="is" if len(missing) == 1 else "are")
