"""A vendor's tool hung, crashed or contradicts the kernel.

## What it does
Asks rocminfo and nvidia-smi, where they are installed and their driver is loaded, each in a process of its own with a
deadline, and compares what the runtime sees with what the kernel shows.

## Why it matters
A tool that hangs means a driver that hangs: the next HIP program will too. A runtime that sees fewer chips than the kernel
has a problem of access or of versions.

## Example
    rocminfo is silent after 5 s

## Use instead
Look into the kernel's log (`dmesg | grep -i amdgpu`), and restart the container or the host.

## When to allow it
When the accelerator is not meant for this program.
"""

from collections.abc import Iterator

from rocsolid.model.environment import CheckStatus, Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="SYS011",
    name="vendor-tool-failed",
    severity=Severity.WARNING,
    message="{subject} {ending}: {detail}",
    why="A tool that hangs or crashes points at the driver below it; programs that use the device may do the same.",
    fix="look into the kernel's log (dmesg | grep -iE 'amdgpu|nvrm'), then restart the container or the host",
    check="timeout 10 {subject} && echo ok",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Tools that ended badly, or answered something else than the kernel."""
    for tool in env.tools:
        if tool.status in (CheckStatus.FAILED, CheckStatus.CRASHED, CheckStatus.HUNG):
            severity = Severity.INFO if tool.status is CheckStatus.FAILED else Severity.WARNING
            yield RULE.found(tool.name, severity=severity, ending=tool.status.value, detail=tool.detail)
        elif tool.detail:
            yield RULE.found(tool.name, ending="answered, but", detail=tool.detail)
