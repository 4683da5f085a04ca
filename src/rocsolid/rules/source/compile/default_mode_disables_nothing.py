"""ROCm is given mode "default" to switch something off, and that mode switches nothing off.

## What it does
Reports a choice by vendor that gives ROCm `mode="default"` and other devices a mode that captures graphs.

## Why it matters
`mode="default"` is an empty patch. Where the environment or a library has switched on autotuning or graphs, it leaves them on.
The sglang images for ROCm set `TORCHINDUCTOR_MAX_AUTOTUNE=1`, so that "default" searches there.

## Example
    import torch

    is_rocm = torch.version.hip is not None
    model = torch.compile(model, mode="default" if is_rocm else "reduce-overhead")

## Use instead
    import rocsolid as rs

    model = rs.compile(model, profile="safe")

## When to allow it
When the environment is known to change no setting; `rocsolid probe` says so.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.compile.mode_hard_coded import RISKY
from rocsolid.rules.source.settings import mode_choices_by_vendor
from rocsolid.rules.source.syntax import match_at, site_of

RULE = Rule(
    code="SRC103",
    name="default-mode-disables-nothing",
    severity=Severity.INFO,
    message='ROCm is given mode "default" where other devices get {subject!r}',
    why="The mode default is an empty patch: what a variable, an image or a library has switched on stays on.",
    fix='Say what must be off: rs.compile(model, profile="safe"), or options={{"triton.cudagraphs": False, "max_autotune": False}}.',
    check="rocsolid probe",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#mode-patch-over-config",
            "With graphs assigned True, mode default left them on.",
        ),
        upstream("torch 2.13 _inductor/__init__.py list_mode_options", "The mode default is an empty dict."),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Every choice between two modes by vendor that leaves `default` to ROCm."""
    for node, on_rocm, elsewhere in mode_choices_by_vendor(source):
        if on_rocm == "default" and elsewhere in RISKY:
            yield match_at(site_of(source, node), elsewhere)
