"""Autotuning is turned off in only one of its three settings.

## What it does
Reports `max_autotune = False` in a file that does not set `max_autotune_pointwise` and `max_autotune_gemm`.

## Why it matters
Each of `max_autotune`, `max_autotune_pointwise` and `max_autotune_gemm` turns on autotuning by itself. The SGLang
images for ROCm set the variables of two of them to 1, so code that turns off only `max_autotune` still autotunes.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.max_autotune = False

## Use instead
    import torch._inductor.config as inductor_config

    inductor_config.max_autotune = False
    inductor_config.max_autotune_pointwise = False
    inductor_config.max_autotune_gemm = False

## When to allow it
When you know that the environment sets none of these variables.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC119",
    name="autotune-partly-disabled",
    severity=Severity.INFO,
    message="`inductor.max_autotune` is turned off, but {subject} {is_or_are} not",
    why="max_autotune, max_autotune_pointwise and max_autotune_gemm each turn on autotuning by themselves, and the environment may have set them.",
    fix='Turn all three off, or use rs.compile(model, profile="safe").',
    check="rocsolid probe",
    since="0.1",
    on_by_default=False,
    evidence=(
        source_evidence(
            "torch 2.13 _inductor/utils.py use_triton_template",
            "max_autotune or max_autotune_gemm turns on autotuning.",
        ),
        source_evidence("sglang docker/Dockerfile.rocm", "Sets TORCHINDUCTOR_MAX_AUTOTUNE and _POINTWISE to 1."),
    ),
)
_OTHER_SETTINGS = ("max_autotune_pointwise", "max_autotune_gemm")


def check(source: Source) -> Iterator[SourceMatch]:
    """The first `max_autotune = False` in a file, unless the file also assigns the other two settings."""
    if "max_autotune" not in source.text:
        return
    changes = [change for change in setting_changes(source) if change.owner == "inductor" and change.how == "assigned"]
    missing = [name for name in _OTHER_SETTINGS if not any(change.name == name for change in changes)]
    first = next((change for change in changes if change.name == "max_autotune" and change.constant is False), None)
    if first and missing:
        yield match_at(first.site, " and ".join(missing), is_or_are="is" if len(missing) == 1 else "are")
