"""Code changes a setting that does not do what guides say.

## What it does
Reports changes of settings that guides describe wrongly. The finding says what the setting really does.

## Why it matters
`benchmark_kernel` benchmarks nothing while compiling, `trace.debug_log` prints no generated code,
`max_autotune_gemm_backends` is not read while autotuning is off, and `epilogue_fusion` has nothing to fuse into when
matmuls run in the BLAS library. So none of them brings the speed-up that guides promise.

## Example
    import torch._inductor.config as inductor_config

    inductor_config.benchmark_kernel = True

## Use instead
    import torch

    model = torch.compile(model, mode="max-autotune-no-cudagraphs")

## When to allow it
When you want what it really does.
"""

from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import SettingChange, setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC127",
    name="misunderstood-setting",
    severity=Severity.INFO,
    message="`{change}` does not do what guides say",
    why="{real_effect}",
    fix="Remove it, unless you want what it really does (`rocsolid explain {subject}`).",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    on_by_default=False,
    evidence=(source_evidence("torch 2.13 _inductor", "The code that reads each setting."),),
)
_MISUNDERSTOOD_VALUES = {
    "inductor.benchmark_kernel": True,
    "inductor.trace.debug_log": True,
    "inductor.triton.multi_kernel": 1,
}
# What settings without notes in the catalogue do.
_REAL_EFFECTS = {
    "inductor.triton.multi_kernel": (
        "It affects only reductions: Inductor generates each one twice, persistent and looped, and chooses by timing at the first call."
    ),
}


def check(source: Source) -> Iterator[SourceMatch]:
    """Settings that do something else, and settings that another setting in the same file makes ineffective."""
    changes = [
        change
        for change in setting_changes(source)
        if change.owner == "inductor" and not source.module.startswith("torch.")
    ]
    for change in changes:
        setting = find(change.id)
        if setting and (_MISUNDERSTOOD_VALUES.get(change.id, ...) == change.constant or _is_unread(change, changes)):
            yield match_at(
                change.site,
                change.id,
                change=change.text,
                underline=change.underline,
                real_effect=setting.notes or _REAL_EFFECTS.get(change.id, setting.summary),
            )


def _is_unread(change: SettingChange, changes: list[SettingChange]) -> bool:
    """Whether another setting in the file means that nothing reads this one."""
    values = {other.name: other.constant for other in changes}
    if change.name == "max_autotune_gemm_backends":
        return values.get("max_autotune") is False and values.get("max_autotune_gemm") is not True
    return (
        change.name == "epilogue_fusion"
        and change.constant is True
        and values.get("max_autotune_gemm_backends") == "ATEN"
    )
