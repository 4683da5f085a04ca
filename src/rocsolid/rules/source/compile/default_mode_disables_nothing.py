"""`mode="default"` is used on ROCm to turn features off, but it turns nothing off.

## What it does
Reports code that uses `mode="default"` on ROCm and a mode that captures graphs on other platforms.

## Why it matters
`mode="default"` changes no setting. If the environment or a library has turned on autotuning or graphs, they stay on.
The SGLang images for ROCm set `TORCHINDUCTOR_MAX_AUTOTUNE=1`, so "default" autotunes there.

## Example
    import torch

    is_rocm = torch.version.hip is not None
    model = torch.compile(model, mode="default" if is_rocm else "reduce-overhead")

## Use instead
    import rocsolid as rs

    model = rs.compile(model, profile="safe")

## When to allow it
When you know that the environment changes no setting; check with `rocsolid probe`.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.compile.mode_hard_coded import GRAPH_MODES
from rocsolid.rules.source.settings import mode_choices_by_vendor
from rocsolid.rules.source.syntax import match_at, site_of

RULE = Rule(
    code="SRC103",
    name="default-mode-disables-nothing",
    severity=Severity.INFO,
    message='On ROCm, mode="default" is used instead of mode="{subject}", but it turns nothing off',
    why='mode="default" changes no setting: what a variable, an image or a library has turned on stays on.',
    fix='Name what must be off: options={{"triton.cudagraphs": False, "max_autotune": False}}, or rs.compile(model, profile="safe")',
    check="rocsolid probe",
    since="0.1",
    on_by_default=False,
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#mode-patch-over-config",
            "With triton.cudagraphs assigned True, mode default left graphs on.",
        ),
        source_evidence("torch 2.13 _inductor/__init__.py list_mode_options", "The mode default is an empty dict."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every choice between modes by vendor that gives "default" to ROCm."""
    for node, on_rocm, other_mode in mode_choices_by_vendor(source):
        if on_rocm == "default" and other_mode in GRAPH_MODES:
            yield match_at(site_of(source, node), other_mode)
