"""Code changes a setting that does something else than guides say.

## What it does
Reports changes of settings that guides describe wrongly, with what they really do.

## Why it matters
`benchmark_kernel` benchmarks nothing while compiling, `trace.debug_log` prints no generated code,
`max_autotune_gemm_backends` is not read while autotuning is off, and `epilogue_fusion` has nothing to fuse into when
matmuls go to the BLAS library. The expected gain cannot come.

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
from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.settings import SettingChange, setting_changes
from rocsolid.rules.source.syntax import match_at

RULE = Rule(
    code="SRC127",
    name="misunderstood-setting",
    severity=Severity.INFO,
    message="`{change}` does not do what guides say",
    why="{notes}",
    fix="Remove it, unless you want what it really does (`rocsolid explain {subject}`).",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(upstream("torch 2.13 _inductor", "The code that reads each setting."),),
)
_MISUNDERSTOOD_VALUES = {
    "inductor.benchmark_kernel": True,
    "inductor.trace.debug_log": True,
    "inductor.triton.multi_kernel": 1,
}


def check(source: Source) -> Iterator[SourceMatch]:
    """Settings that do something else, and settings that another setting in the same file makes ineffective."""
    found = [m for m in setting_changes(source) if m.owner == "inductor" and not source.module.startswith("torch.")]
    for change in found:
        setting = find(change.id)
        if setting and (_MISUNDERSTOOD_VALUES.get(change.id, ...) == change.constant or _is_unread(change, found)):
            yield match_at(
                change.at,
                change.id,
                change=change.text,
                underline=change.underline,
                notes=setting.notes or setting.summary,
            )


def _is_unread(change: SettingChange, found: list[SettingChange]) -> bool:
    """Whether another setting in the file means that nothing reads this one."""
    values = {m.name: m.constant for m in found}
    if change.name == "max_autotune_gemm_backends":
        return values.get("max_autotune") is False and values.get("max_autotune_gemm") is not True
    return (
        change.name == "epilogue_fusion"
        and change.constant is True
        and values.get("max_autotune_gemm_backends") == "ATEN"
    )
