"""rocminfo or nvidia-smi hung, crashed, or reports other GPUs than Linux does.

## What it does
Runs rocminfo and nvidia-smi where they are installed and their driver is loaded, each in its own process with a
deadline. Compares the GPUs that the runtime sees with those that Linux shows.

## Why it matters
If the tool hangs, the driver probably hangs, and so will the next GPU program. If the runtime sees fewer GPUs than
Linux, access rights or versions are wrong.

## Example
    `rocminfo` hung: no output for 5 s

## Use instead
Read the kernel log (`dmesg | grep -i amdgpu`), and restart the container or the host.

## When to allow it
When this program is not supposed to use the GPU.
"""

from collections.abc import Iterator

from rocsolid.model.environment import CheckStatus, Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="SYS011",
    name="vendor-tool-failed",
    severity=Severity.WARNING,
    message="`{subject}` {outcome}: {detail}",
    why="{why}",
    fix="Read the kernel log (dmesg | grep -iE 'amdgpu|nvrm'), then restart the container or the host.",
    check="timeout 10 {subject} && echo ok",
    since="0.1",
)

_FAILED_WHY = "When this tool hangs or crashes, the driver is usually the cause, and programs that use the GPU may hang or crash too."
_MISMATCH_WHY = "If the runtime sees fewer GPUs than the kernel driver, access rights or versions are usually wrong."


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Tools that failed, or that list other GPUs than the kernel driver."""
    for tool in env.tools:
        if tool.status in (CheckStatus.FAILED, CheckStatus.CRASHED, CheckStatus.HUNG):
            severity = Severity.INFO if tool.status is CheckStatus.FAILED else Severity.WARNING
            yield RULE.found(
                tool.name, severity=severity, outcome=tool.status.value, detail=tool.detail, why=_FAILED_WHY
            )
        elif tool.detail:
            yield RULE.found(
                tool.name, outcome="and the kernel driver list different GPUs", detail=tool.detail, why=_MISMATCH_WHY
            )
